// Gives other files of the library access to the internal state of a Model.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "onnx/cut_tensors.h"
#include "onnx/function_attributes.h"
#include "onnx/open_values.h"
#include "onnx_external/model.h"

namespace onnx_external {

// The location that marks external data in memory, in a model that is itself in memory. In such an
// entry, `offset` is the index of the tensor in the list that is passed to the save together with
// the model, and `length` may be omitted. In a model that was loaded from a file, this location is
// an ordinary file name.
inline constexpr std::string_view kInMemoryLocation = "*loose*";

[[nodiscard]] inline bool is_in_memory(const Model& model, const ExternalTensor& tensor) {
  return model.path().empty() && tensor.location == kInMemoryLocation;
}

struct ModelAccess {
  // Return the messages of external_tensors()[i] and inline_tensors()[i]. The data of inline
  // tensors is read through inline_data.h. Requires: i is in the list.
  [[nodiscard]] static const onnx::TensorProto& external_proto(const Model& model, std::size_t i);
  [[nodiscard]] static const onnx::TensorProto& inline_proto(const Model& model, std::size_t i);

  [[nodiscard]] static const CutTensors& cuts(const Model& model);

  // Returns the detached attributes of functions that hold tensors.
  [[nodiscard]] static std::span<const std::shared_ptr<const DetachedAttribute>>
  detached_attributes(const Model& model);

  // Returns the names and tensors without a value that are not slots (open_values.h).
  [[nodiscard]] static std::span<const OpenValue> open_values(const Model& model);
};

}  // namespace onnx_external
