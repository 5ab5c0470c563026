#include "onnx/cut_tensors.h"

namespace onnx_external {

std::optional<std::span<const WirePiece>> CutTensors::find(const onnx::TensorProto& tensor) const {
  const auto number = placeholders_.read(tensor.raw_data());
  return number ? std::optional(pieces(*number)) : std::nullopt;
}

}  // namespace onnx_external
