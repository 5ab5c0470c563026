#include "save/replaced.h"

#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"
#include "save/notes.h"

namespace onnx_external {
namespace {

constexpr std::string_view kReplacedMagic = "onnx-external-replaced 1 ";
constexpr std::uint64_t kMaxNoteBytes = 100;
constexpr std::size_t kCrcDigits = 8;

}  // namespace

std::string replaced_text(const ModelIdentity& model) {
  return std::string(kReplacedMagic) + identity_text(model) + "\n";
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
  TRY_ASSIGN(const auto text, read_note(staging, kReplacedName, kMaxNoteBytes));
  return text ? parse_replaced(*text) : std::nullopt;
}

}  // namespace onnx_external
