// Provides, for each kind of error, the title of its list (such as "missing from the checkpoint")
// and the phrase that follows the number of entries in a message.
#pragma once

#include <cstddef>
#include <string_view>

#include "onnx_external/error_kinds.h"

namespace onnx_external {

inline constexpr std::size_t kErrorKinds = static_cast<std::size_t>(ErrorKind::kLearnFolded) + 1;
inline constexpr std::size_t kRemedyOptions = static_cast<std::size_t>(RemedyOption::kVariant) + 1;

// Returns the phrase that follows the count in a message, such as "key is not used by the graph"
// for a count of 1.
[[nodiscard]] std::string_view words_of(ErrorKind kind, std::size_t count);

// Returns the title of a list, without the name of its owner (ErrorList::owner).
[[nodiscard]] std::string_view title_of(ErrorKind kind);

}  // namespace onnx_external
