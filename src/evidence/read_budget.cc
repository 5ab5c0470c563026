#include "evidence/read_budget.h"

#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/name_map.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"

namespace onnx_external {

ReadBudget::ReadBudget(const Model& model, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    bytes += stored_bytes(*file);
  }
  NameSet locations;
  for (const ExternalTensor& tensor : model.external_tensors()) {
    if (is_in_memory(model, tensor)) {
      bytes += tensor.length;
      continue;
    }
    if (!locations.insert(tensor.location).second) {
      continue;
    }
    if (const auto file = open_external(model, tensor)) {
      bytes += stored_bytes(**file);
    }
  }
  for (const InlineTensor& tensor : model.inline_tensors()) {
    bytes += tensor.length;
  }
  left_ += checked_mul(bytes, kMaxTimesRead).value_or(UINT64_MAX / 2);
}

Status ReadBudget::take(std::uint64_t bytes) {
  if (bytes > left_) {
    return fail(
        ErrorCode::kUnsupported,
        "comparing its tensors would require reading more than " + std::to_string(kMaxTimesRead) +
            " times the size of the files: the tensors share their bytes, or are holes in a file");
  }
  left_ -= bytes;
  return {};
}

ByteStream ReadBudget::counted(ByteStream stream) {
  return {stream.nbytes,
          [this, next = std::move(stream.next)](std::span<std::byte> out) {
            Status status = take(out.size());
            return status ? next(out) : status;
          },
          stream.is_made};
}

}  // namespace onnx_external
