// Access to the internal state of a Model for other files of the library.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "onnx/cut_tensors.h"
#include "onnx/function_attributes.h"
#include "onnx/open_places.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct ModelAccess {
  // The messages of external_tensors()[i] and inline_tensors()[i]. The data of the latter is read
  // through inline_data.h. Requires: i is in the list.
  [[nodiscard]] static const onnx::TensorProto& external_proto(const Model& model, std::size_t i);
  [[nodiscard]] static const onnx::TensorProto& inline_proto(const Model& model, std::size_t i);

  [[nodiscard]] static const CutTensors& cuts(const Model& model);

  // The loose tensors that were passed with the model (kLooseLocation); null if there are none.
  [[nodiscard]] static const Checkpoint* loose_tensors(const Model& model);
  // The index of the loose tensor that has the data of `external`; nothing if its data is in a
  // file.
  [[nodiscard]] static std::optional<std::size_t> loose_index(const Model& model,
                                                              const ExternalTensor& external);
  // The lists of loose tensors of several models, each list once, in the order of the models.
  [[nodiscard]] static std::vector<const Checkpoint*> loose_tensors(std::span<const Model> models);
  // Requires: each entry of kLooseLocation has its tensor.
  static void set_loose_tensors(Model& model, std::shared_ptr<const Checkpoint> tensors);

  // Only those that hold tensors.
  [[nodiscard]] static std::span<const std::shared_ptr<const LooseAttribute>> loose_attributes(
      const Model& model);

  // Names and tensors without a value that are not slots (open_places.h).
  [[nodiscard]] static std::span<const OpenPlace> open_places(const Model& model);
};

}  // namespace onnx_external
