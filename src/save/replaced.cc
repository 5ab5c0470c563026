#include "save/replaced.h"

#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"

namespace onnx_external {
namespace {

constexpr std::string_view kReplacedMagic = "onnx-external-replaced 1 ";
constexpr std::uint64_t kMaxNoteBytes = 100;
constexpr std::size_t kCrcDigits = 8;

}  // namespace

std::string replaced_text(const ModelIdentity& model) {
  std::string text(kReplacedMagic);
  return text.append(hex_text(model.crc32))
      .append(" ")
      .append(std::to_string(model.bytes))
      .append("\n");
}

namespace {

std::optional<ModelIdentity> parse_replaced(std::string_view text) {
  if (text.size() < kReplacedMagic.size() + kCrcDigits + 2) {
    return std::nullopt;
  }
  const std::string_view said = text.substr(kReplacedMagic.size());
  const auto crc = hex_number(said.substr(0, kCrcDigits));
  const auto bytes = parse_decimal(said.substr(kCrcDigits + 1, said.size() - kCrcDigits - 2));
  if (!crc || !bytes) {
    return std::nullopt;
  }
  const ModelIdentity model{*bytes, *crc};
  return text == replaced_text(model) ? std::optional(model) : std::nullopt;
}

}  // namespace

Result<std::optional<ModelIdentity>> read_replaced(const Directory& staging) {
  const std::string name(kReplacedName);
  TRY_ASSIGN(const auto kind, staging.kind_of(name));
  if (kind != EntryKind::kFile) {
    return std::nullopt;
  }
  const auto file = open_plain(staging, name);
  if (!file && file.error().code == ErrorCode::kNotFound) {
    return std::nullopt;  // gone meanwhile
  }
  TRY(file);
  if ((*file)->size() > kMaxNoteBytes) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto text, read_file(**file, kMaxNoteBytes));
  return parse_replaced(text);
}

}  // namespace onnx_external
