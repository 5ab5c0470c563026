#include "verify/range_file.h"

#include <string>
#include <utility>

#include "base/checked_math.h"
#include "base/foreign_format.h"
#include "base/safe_path.h"

namespace onnx_external {

Fault fault_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return {FindingCode::kMissingFile, error.message};
    case ErrorCode::kInvalidArgument:
      return {FindingCode::kBadFileKind, error.message};
    case ErrorCode::kCorrupt:  // it became shorter while it was being read
      return {FindingCode::kOutOfRange, error.message};
    default:
      return {FindingCode::kUnreadable, error.message};
  }
}

std::shared_ptr<const SourceFile> open_range(const Directory& folder, const RangeCheck& check,
                                             CheckedFiles& checked, RangeAnswer& answer) {
  const bool was_checked = checked.contains(check.location);
  auto file = open_data_file(folder, check.location, &answer.hub_link,
                             was_checked ? DataCheck::kNone : DataCheck::kContents);
  if (!file) {
    answer.fault = fault_of(file.error());
    return nullptr;
  }
  if (!was_checked) {
    checked.add(check.location);
  }
  answer.hard_links = (*file)->link_count() > 1;
  if (!range_fits(check.offset, check.length, (*file)->size())) {
    answer.fault = {FindingCode::kOutOfRange,
                    "bytes " + std::to_string(check.offset) + " to " +
                        std::to_string(check.offset + check.length) + ", but the file has " +
                        std::to_string((*file)->size()) + short_data_text(**file)};
    return nullptr;
  }
  return *std::move(file);
}

}  // namespace onnx_external
