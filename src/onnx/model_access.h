// What a Model holds besides its public members.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <memory>
#include <span>

#include "onnx/cut_tensors.h"
#include "onnx/function_attributes.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct ModelAccess {
  // The messages of external_tensors()[i] and inline_tensors()[i]. The data of the latter is read
  // through inline_data.h. Requires: i is in the list.
  [[nodiscard]] static const onnx::TensorProto& external_proto(const Model& model, std::size_t i);
  [[nodiscard]] static const onnx::TensorProto& inline_proto(const Model& model, std::size_t i);

  [[nodiscard]] static const CutTensors& cuts(const Model& model);

  // Only those that hold tensors.
  [[nodiscard]] static std::span<const std::shared_ptr<const LooseAttribute>> loose_attributes(
      const Model& model);
};

}  // namespace onnx_external
