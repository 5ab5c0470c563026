// Adds the float matrices that models already contain to the tensors of the checkpoint, so that
// quantization reads a model's own weights like those of the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The location of a weight's data in its model.
enum class OwnData : std::uint8_t { kExternal, kInline };

// For each model, maps external_tensors()[i] or inline_tensors()[i] to the index of the appended
// tensor (CheckpointAccess::given_tensor()) with its data.
using OwnWeights = std::vector<std::map<std::pair<OwnData, std::size_t>, std::size_t>>;

// Appends the float matrices of the models to `given`, which holds the tensors in memory to which
// the models refer, and returns their indices. Reads no data. Errors: kCorrupt, kNotFound or kIo
// for data files that do not match the models.
[[nodiscard]] Result<OwnWeights> append_own_weights(std::span<const Model> models,
                                                    std::vector<ProvidedTensor>& given);

}  // namespace onnx_external
