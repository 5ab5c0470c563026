// Defines corrupt() and unsupported(), which create the two errors that file readers return most
// often.
#pragma once

#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external {

[[nodiscard]] inline tl::unexpected<Error> corrupt(std::string what) {
  return fail(ErrorCode::kCorrupt, std::move(what));
}

[[nodiscard]] inline tl::unexpected<Error> unsupported(std::string what) {
  return fail(ErrorCode::kUnsupported, std::move(what));
}

}  // namespace onnx_external
