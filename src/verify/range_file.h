// Opens the data file of a range that is checked, for range_check.cc and matrix_check.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "base/directory.h"
#include "base/file.h"
#include "verify/range_check.h"

namespace onnx_external {

// Stays in a core's L2 cache between reading, comparing and the CRC.
inline constexpr std::uint64_t kPlainStep = std::uint64_t{256} << 10;

// The finding for an error of open_data_file or of reading.
[[nodiscard]] Fault fault_of(const Error& error);

// Opens the file and says in `answer` what kind of link it is. Null if there is no such file or it
// lacks the range; answer.fault then says so.
[[nodiscard]] std::shared_ptr<const SourceFile> open_range(const Directory& folder,
                                                           const RangeCheck& check,
                                                           RangeAnswer& answer);

}  // namespace onnx_external
