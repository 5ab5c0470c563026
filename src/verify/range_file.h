// Opens the data file of a range that the verifier checks, and turns errors of opening or reading
// it into findings.
#pragma once

#include <cstdint>
#include <memory>

#include "base/directory.h"
#include "base/file.h"
#include "verify/range_check.h"

namespace onnx_external {

// The bytes read at once: few enough to stay in a core's L2 cache while they are read, compared and
// checksummed.
inline constexpr std::uint64_t kPlainStep = std::uint64_t{256} << 10;

// Converts an error of open_data_file or of reading to a finding.
[[nodiscard]] Fault fault_of(const Error& error);

// Opens the file and records in `answer` what kind of link it is. Returns null if there is no such
// file or it does not contain the range; answer.fault then says so.
[[nodiscard]] std::shared_ptr<const SourceFile> open_range(const Directory& folder,
                                                           const RangeCheck& check,
                                                           RangeAnswer& answer);

}  // namespace onnx_external
