// Adds the weights that models hold to the checkpoint's tensors, so that quantizing reads both in
// the same way.
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

// The place of a weight's data in its model.
enum class OwnData : std::uint8_t { kExternal, kInline };

// For each model: which of the tensors given beside the checkpoint (CheckpointAccess::given_tensor)
// has the data of external_tensors()[i] or inline_tensors()[i].
using OwnWeights = std::vector<std::map<std::pair<OwnData, std::size_t>, std::size_t>>;

// Appends the float matrices of the models to `given`, which are the tensors in memory that the
// models refer to, and returns their places. Reads no data. kCorrupt, kNotFound, kIo for data files
// that are not what their models say.
[[nodiscard]] Result<OwnWeights> append_own_weights(std::span<const Model> models,
                                                    std::vector<ProvidedTensor>& given);

}  // namespace onnx_external
