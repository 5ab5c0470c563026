#include "checkpoint/formats/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/foreign_format.h"
#include "base/holes.h"
#include "base/json.h"
#include "base/try.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/torch_files.h"
#include "checkpoint/formats/torch_tar.h"
#include "checkpoint/formats/zip_checkpoint.h"
#include "checkpoint/pickle/pickle_stream.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kTarMagicOffset = 257;
constexpr std::array kOldPickles = {"(dp"sv,   "(lp"sv, "}q"sv, "]q"sv, "ccollections\n"sv,
                                    "ctorch"sv};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// A length that the format allows, then JSON. Text files fail the first test by a wide margin.
bool looks_like_safetensors(std::string_view head) {
  std::uint64_t length = 0;
  if (head.size() < sizeof(length) + 1) {
    return false;
  }
  std::memcpy(&length, head.data(), sizeof(length));
  return length <= kMaxSafetensorsHeader && length >= 2 && (head[8] == '{' || is_blank(head[8]));
}

// Pickles of protocol 2 and later identify themselves. Of the older ones, this recognizes what
// pickle.dump writes for dicts, lists, and the few objects that a checkpoint can be.
bool looks_like_pickle(std::string_view head) {
  if (head.size() >= 2 && head[0] == '\x80') {
    return head[1] >= 2 && head[1] <= 5;
  }
  return std::any_of(kOldPickles.begin(), kOldPickles.end(),
                     [&](std::string_view start) { return head.starts_with(start); });
}

FileFormat format_of(std::string_view head) {
  if (head.starts_with("PK\x03\x04"sv)) {
    return FileFormat::kTorchZip;
  }
  if (is_legacy_torch(head)) {
    return FileFormat::kTorchLegacy;
  }
  if (head.size() > kTarMagicOffset && head.substr(kTarMagicOffset).starts_with("ustar")) {
    return FileFormat::kTorchTar;
  }
  if (head.starts_with("GGUF"sv)) {
    return FileFormat::kGguf;
  }
  if (looks_like_safetensors(head)) {
    return FileFormat::kSafetensors;
  }
  if (looks_like_pickle(head)) {
    return FileFormat::kPickle;
  }
  std::string_view text = head;
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());  // the reader of JSON refuses it by name
  }
  const auto first = std::find_if_not(text.begin(), text.end(), is_blank);
  if (first != text.end() && *first == '{') {
    return FileFormat::kJson;
  }
  return foreign_format(head) ? FileFormat::kForeign : FileFormat::kUnknown;
}

// joblib compressed under a magic of its own ("ZF") before it left that to the standard library.
bool is_zlib(std::string_view head) {
  constexpr std::array kStarts = {"x\x01"sv, "x\x5e"sv, "x\x9c"sv, "x\xda"sv, "ZF0x"sv};
  return std::any_of(kStarts.begin(), kStarts.end(),
                     [&](std::string_view start) { return head.starts_with(start); });
}

// Returns the error for a file whose content is not a checkpoint.
Error refusal(const SourceFile& file, std::string_view head) {
  const auto found = foreign_format(head);
  std::string what = found ? found->text() : "not a checkpoint of a known format";
  if (file.size() == 0) {
    what = "an empty file; download or save it again";
  } else if (is_error_document(head)) {
    what = "a server's error message (JSON); download the file again";
  } else if (is_all_zeros(head)) {
    what = kBeginsWithZeros;
  } else if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) {
    what = "text in UTF-16, as PowerShell's > writes; save it as UTF-8";
  } else if (!found && is_zlib(head)) {
    what =
        "compressed by zlib, as joblib does; load it with the library that wrote it, and save its "
        "tensors as safetensors";
  } else if (!found && begins_like_onnx(head)) {
    what = "an ONNX model, not a checkpoint; pass the graph first, then the checkpoint";
  }
  return {ErrorCode::kUnsupported, file.name() + ": " + what};
}

}  // namespace

Result<FileFormat> sniff_format(const SourceFile& file) {
  TRY_ASSIGN(const auto head, head_of(file));
  return format_of(head);
}

Result<FileContents> read_checkpoint_file(std::shared_ptr<const SourceFile> file,
                                          const OpenOptions& options) {
  TRY_ASSIGN(const auto head, head_of(*file));
  TRY(check_is_written(*file));
  switch (format_of(head)) {
    case FileFormat::kTorchZip:
      return read_zip_checkpoint(std::move(file), options);
    case FileFormat::kSafetensors:
      return read_safetensors(std::move(file), options);
    case FileFormat::kTorchLegacy:
      return read_torch_legacy(std::move(file), options);
    case FileFormat::kTorchTar:
      return read_torch_tar(std::move(file), options);
    case FileFormat::kPickle:
      return read_pickle_file(std::move(file), options);
    case FileFormat::kGguf:
    case FileFormat::kForeign:
      return fail(refusal(*file, head));
    case FileFormat::kJson:
    case FileFormat::kUnknown:
      break;
  }
  const bool is_named = file->path().extension() == ".safetensors" && file->size() > 0;
  if (is_named && !begins_like_onnx(head) && !is_error_document(head) && !is_all_zeros(head)) {
    return read_safetensors(std::move(file), options);  // its error says what is wrong
  }
  return fail(refusal(*file, head));
}

}  // namespace onnx_external
