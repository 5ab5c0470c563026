#include "checkpoint/formats/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/json.h"
#include "base/try.h"
#include "checkpoint/formats/pickle_file.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/torch_legacy.h"
#include "checkpoint/formats/torch_tar.h"
#include "checkpoint/formats/zip_checkpoint.h"
#include "checkpoint/pickle/pickle_stream.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kSniffBytes = 512;
constexpr std::string_view kLfsStart = "version https://git-lfs.github.com/spec/";
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
  if (looks_like_safetensors(head)) {
    return FileFormat::kSafetensors;
  }
  if (looks_like_pickle(head)) {
    return FileFormat::kPickle;
  }
  constexpr std::size_t kFlatbufferId = 4;  // where flatbuffers name their schema
  if (head.size() > kFlatbufferId && head.substr(kFlatbufferId).starts_with("PTMF")) {
    return FileFormat::kOther;
  }
  for (const std::string_view magic :
       {"\x1f\x8b"sv, "\x37\x7a\xbc\xaf\x27\x1c"sv, "\x93NUMPY"sv, "\x89HDF"sv, "GGUF"sv}) {
    if (head.starts_with(magic)) {
      return FileFormat::kOther;
    }
  }
  if (head.starts_with(kLfsStart)) {
    return FileFormat::kLfsPointer;
  }
  if (head.starts_with(kByteOrderMark)) {
    head.remove_prefix(kByteOrderMark.size());  // the reader of JSON refuses it by name
  }
  const auto first = std::find_if_not(head.begin(), head.end(), is_blank);
  return first != head.end() && *first == '{' ? FileFormat::kJson : FileFormat::kUnknown;
}

Error unsupported_format(const SourceFile& file, std::string_view what) {
  return {ErrorCode::kUnsupported, file.name() + ": " + std::string(what)};
}

}  // namespace

Result<FileFormat> sniff_format(const SourceFile& file) {
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kSniffBytes)),
                   '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(head))));
  return format_of(head);
}

Result<FileContents> read_checkpoint_file(std::shared_ptr<const SourceFile> file,
                                          const OpenOptions& options) {
  TRY_ASSIGN(const auto format, sniff_format(*file));
  switch (format) {
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
    case FileFormat::kLfsPointer:
      return fail(unsupported_format(
          *file, "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"));
    case FileFormat::kOther:
      return fail(
          unsupported_format(*file,
                             "not a checkpoint that is read (gzip, 7z, npy, HDF5, GGUF or a mobile "
                             "module as a flatbuffer)"));
    case FileFormat::kJson:
    case FileFormat::kUnknown:
      break;
  }
  if (file->path().extension() == ".safetensors") {
    return read_safetensors(std::move(file), options);  // its error says what is wrong
  }
  return fail(unsupported_format(
      *file, file->size() == 0 ? "an empty file" : "not a checkpoint of a known format"));
}

}  // namespace onnx_external
