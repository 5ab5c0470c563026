#include "verify/findings.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "onnx_external/verify.h"

namespace onnx_external {
namespace {

FindingCode code_of(EntryFault fault) {
  switch (fault) {
    case EntryFault::kLocation:
      return FindingCode::kBadLocation;
    case EntryFault::kLength:
      return FindingCode::kWrongLength;
    case EntryFault::kRange:
      return FindingCode::kOutOfRange;
    case EntryFault::kInlineToo:
      return FindingCode::kInlineAndExternal;
    case EntryFault::kEntry:
      break;
  }
  return FindingCode::kBadEntry;
}

// In the order of the enum.
constexpr auto kCodeNames = std::to_array<std::string_view>(
    {"bad-entry",      "bad-location", "missing-file",      "bad-file-kind",
     "unreadable",     "out-of-range", "wrong-length",      "inline-and-external",
     "duplicate-name", "bytes-differ", "crc-differs",       "checksum-differs",
     "type-differs",   "manifest",     "not-in-checkpoint", "missing-tensor",
     "model-changed",  "open-slot",    "mixed-set",         "parent-replaced"});
static_assert(kCodeNames.size() == static_cast<std::size_t>(FindingCode::kParentReplaced) + 1);

}  // namespace

std::string name_in_finding(std::string_view name) {
  return name.size() <= kMaxQuotedBytes ? std::string(name)
                                        : std::string(name.substr(0, kMaxQuotedBytes)) + "...";
}

std::optional<ExternalEntry> read_entry(const ListedTensor& tensor,
                                        std::vector<Finding>& findings) {
  ExternalEntry entry = read_external_entry(*tensor.proto);
  for (auto& [fault, error] : entry.faults) {
    findings.push_back({code_of(fault), name_in_finding(tensor.name),
                        name_in_finding(entry.location), std::move(error.message)});
  }
  return entry.has_range() ? std::optional(std::move(entry)) : std::nullopt;
}

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
