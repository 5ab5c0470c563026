#include <array>
#include <string>
#include <string_view>

#include "base/text.h"
#include "onnx_external/verify.h"

namespace onnx_external {
namespace {

// In the order of the enum.
constexpr auto kCodeNames = std::to_array<std::string_view>(
    {"bad-entry",      "bad-location", "missing-file",      "bad-file-kind",
     "unreadable",     "out-of-range", "wrong-length",      "inline-and-external",
     "duplicate-name", "bytes-differ", "crc-differs",       "checksum-differs",
     "type-differs",   "manifest",     "not-in-checkpoint", "missing-tensor",
     "model-changed",  "open-slot",    "mixed-set",         "parent-replaced"});
static_assert(kCodeNames.size() == static_cast<std::size_t>(FindingCode::kParentReplaced) + 1);

}  // namespace

std::string_view finding_code_name(FindingCode code) {
  return kCodeNames[static_cast<std::size_t>(code)];
}

std::string finding_text(const Finding& finding) {
  std::string text(finding_code_name(finding.code));
  text += finding.tensor.empty() ? "" : ": " + quote(finding.tensor);
  text += finding.file.empty() ? "" : ": " + quote(finding.file);
  return text + ": " + finding.message;
}

}  // namespace onnx_external
