#include "save/notes.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/try.h"

namespace onnx_external {

Result<std::optional<std::string>> read_note(const Directory& staging, std::string_view name,
                                             std::uint64_t max_bytes) {
  const std::string file_name(name);
  TRY_ASSIGN(const auto kind, staging.kind_of(file_name));
  if (kind != EntryKind::kFile) {
    return std::nullopt;
  }
  const auto file = open_plain(staging, file_name);
  if (!file && file.error().code == ErrorCode::kNotFound) {
    return std::nullopt;  // gone meanwhile
  }
  TRY(file);
  if ((*file)->size() > max_bytes) {
    return std::nullopt;
  }
  TRY_ASSIGN(auto text, read_file(**file, max_bytes));
  return text;
}

std::string identity_text(const ModelIdentity& model) {
  return fmt::format("{} {}", hex_text(model.crc32), model.bytes);
}

}  // namespace onnx_external
