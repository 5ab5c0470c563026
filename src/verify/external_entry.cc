#include "verify/external_entry.h"

#include <utility>

#include "base/text.h"

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

}  // namespace onnx_external
