// Adds data of models to the tensors of the checkpoint: the data of models in memory and, so that
// quantization reads a model's own weights like those of the checkpoint, their float matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The location of a weight's data in its model.
enum class OwnData : std::uint8_t { kExternal, kInline };

// For each model, maps external_tensors()[i] or inline_tensors()[i] to the index of the appended
// tensor (CheckpointAccess::given_tensor()) with its data.
using OwnWeights = std::vector<std::map<std::pair<OwnData, std::size_t>, std::size_t>>;

// Appends `tensors`, to which models in memory refer, after the keys of the checkpoint. If the save
// quantizes, appends also the float matrices of the models, and returns their indices. Reads no
// data. Errors: kInvalidArgument for a tensor that does not match its model; kCorrupt, kNotFound or
// kIo for data files that do not match the models.
[[nodiscard]] Result<OwnWeights> add_model_data(std::span<const Model> models,
                                                std::vector<ProvidedTensor> tensors, bool quantizes,
                                                Checkpoint& checkpoint);

}  // namespace onnx_external
