// What a Model holds beside its public face.
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
  // Where the bytes of external_tensors()[i] and inline_tensors()[i] are stated; the latter are
  // read through inline_data.h. Requires: i is in the list.
  [[nodiscard]] static const onnx::TensorProto& external_proto(const Model& model, std::size_t i);
  [[nodiscard]] static const onnx::TensorProto& inline_proto(const Model& model, std::size_t i);

  [[nodiscard]] static const CutTensors& cuts(const Model& model);

  // Those that hold tensors.
  [[nodiscard]] static std::span<const std::shared_ptr<const LooseAttribute>> loose_attributes(
      const Model& model);
};

// Makes what protobuf makes when a message is first looked at by reflection. It cannot stand a
// failed allocation there: who goes on without memory calls this before memory is short.
void prepare_reflection();

}  // namespace onnx_external
