#include "checkpoint/storage/expansion_limit.h"

#include <algorithm>

#include "base/remedy.h"
#include "base/size_text.h"
#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/computed_storages.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {
namespace {

// Returns whether a storage is a quantized weight, or is computed from quantized weights alone.
bool are_floats_of_codes(const FileContents& all, std::uint32_t storage) {
  if (all.quantized.empty()) {
    return false;
  }
  const auto sources = sources_of(all, storage);
  return std::all_of(sources.begin(), sources.end(),
                     [&](std::uint32_t source) { return all.quantized.contains(source); });
}

// The contiguous bytes of all tensors, or of each once that several share.
Result<std::uint64_t> output_bytes(const FileContents& all, bool each_once) {
  BytesIds ids(all.storages);
  std::uint64_t total = 0;
  for (const TensorView& view : all.tensors) {
    TRY_ASSIGN(auto nbytes, contiguous_nbytes(view.dtype, view.shape));
    if (are_floats_of_codes(all, view.storage)) {
      nbytes /= kFloatsPerCodes;
    }
    const std::size_t known = ids.count();
    if (each_once && ids.id_of(view) < known) {  // nothing, which an empty tensor has, is less
      continue;
    }
    if (__builtin_add_overflow(total, nbytes, &total)) {
      return fail(ErrorCode::kCorrupt, "the tensors have more than 2^64 bytes");
    }
  }
  return total;
}

}  // namespace

bool expands_too_far(std::uint64_t bytes, std::uint64_t stored, std::uint64_t max_expand) {
  return bytes > kAlwaysExpandedBytes && bytes / std::max<std::uint64_t>(max_expand, 1) > stored;
}

Status check_expanded(const std::string& what, std::uint64_t bytes, std::uint64_t stored,
                      std::uint64_t max_expand) {
  if (!expands_too_far(bytes, stored, max_expand)) {
    return {};
  }
  return fail_with(
      ErrorCode::kUnsupported,
      what + " have " + size_text(bytes) + ", in files that store " + size_text(stored) +
          "; at most " + std::to_string(max_expand) + " times that size is allowed",
      {{RemedyOption::kMaxExpand, "N", "to allow N times the size, if the files are trusted"}});
}

Status check_tensor_expansion(const FileContents& all, std::uint64_t max_expand,
                              const std::string& where) {
  // Counts bytes of the files, not of inflated records, which can be made at a thousandth of their
  // size.
  std::uint64_t files = 0;
  for (const auto& file : all.files) {
    files += file->size();
  }
  const auto is_too_much = [&](std::uint64_t bytes) {
    return expands_too_far(bytes, files, max_expand);
  };
  auto total = output_bytes(all, false);
  if (!total || is_too_much(*total)) {  // rare, and takes more work
    total = output_bytes(all, true);
  }
  if (!total) {
    return fail_in(where, total.error());
  }
  if (is_too_much(*total)) {
    return fail_with(
        ErrorCode::kUnsupported,
        where + ": the tensors take up " + size_text(*total) + ", expanded from " +
            size_text(files) + "; at most " + std::to_string(max_expand) +
            " times that size is allowed",
        {{RemedyOption::kMaxExpand, "N", "to allow N times the size, if the file is trusted"}});
  }
  return {};
}

}  // namespace onnx_external
