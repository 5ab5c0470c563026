// The titles and the count phrases of an error's lists, by kind.
#pragma once

#include <cstddef>
#include <string_view>

#include "onnx_external/error_kinds.h"

namespace onnx_external {

inline constexpr std::size_t kErrorKinds = static_cast<std::size_t>(ErrorKind::kLearnFolded) + 1;
inline constexpr std::size_t kRemedyOptions = static_cast<std::size_t>(RemedyOption::kVariant) + 1;

// The words after the count of a list in a message: "key is not used by the graph" for one.
[[nodiscard]] std::string_view words_of(ErrorKind kind, std::size_t count);

// The title without its owner.
[[nodiscard]] std::string_view title_of(ErrorKind kind);

}  // namespace onnx_external
