// Lists the members of a tar file.
#pragma once

#include <map>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the names of the regular members and the ranges of their bytes. Skips long names, sparse
// files and other extensions. Reads only headers. Errors: kCorrupt for a wrong checksum, an invalid
// size, or duplicate names; kUnsupported for more than kMaxTarMembers members.
inline constexpr std::size_t kMaxTarMembers = 10'000;
[[nodiscard]] Result<std::map<std::string, ByteRange>> tar_members(const SourceFile& file);

}  // namespace onnx_external
