#include "cut/parent_note.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/model_edits.h"

namespace onnx_external {
namespace {

Result<ParentNote> parse_note(std::string_view text) {
  TRY_ASSIGN(const auto json, parse_json(text));
  const Json* const file = json.find("file");
  const Json* const bytes = json.find("bytes");
  const Json* const crc = json.find("crc32");
  const bool complete = file != nullptr && file->string() != nullptr && bytes != nullptr &&
                        bytes->uint() != nullptr && crc != nullptr && crc->string() != nullptr;
  const auto crc32 = complete ? hex_number(*crc->string()) : std::nullopt;
  if (!crc32) {
    return fail(ErrorCode::kCorrupt, "it lacks a file, a size or a CRC-32");
  }
  if (const Status plain = check_plain_name(*file->string()); !plain) {
    return fail(ErrorCode::kCorrupt, plain.error().message);
  }
  return ParentNote{*file->string(), {*bytes->uint(), *crc32}};
}

}  // namespace

std::string parent_note_text(const ParentNote& note) {
  return fmt::format(R"({{"file": {}, "bytes": {}, "crc32": "{}"}})", json_quote(note.file),
                     note.model.bytes, hex_text(note.model.crc32));
}

Result<std::optional<ParentNote>> read_parent_note(const onnx::ModelProto& model) {
  for (const onnx::StringStringEntryProto& entry : model.metadata_props()) {
    if (entry.key() == kCutFromKey) {
      auto note = parse_note(entry.value());
      if (!note) {
        return fail_in("metadata " + quote(kCutFromKey),
                       Error{ErrorCode::kCorrupt, note.error().message});
      }
      return std::optional(*std::move(note));
    }
  }
  return std::nullopt;
}

}  // namespace onnx_external
