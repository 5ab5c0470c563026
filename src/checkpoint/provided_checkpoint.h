// Creates a checkpoint from tensors that are not in a checkpoint file, such as tensors in memory
// (provided_tensors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class ProvidedNames : std::uint8_t {
  kUnique,  // keys of a checkpoint
  kAny,     // tensors of a model, distinguished by their index
};

// Works like checkpoint_of(). With ProvidedNames::kAny, the names of the tensors need not be
// unique.
[[nodiscard]] Result<Checkpoint> provided_checkpoint(std::vector<ProvidedTensor> tensors,
                                                     const ProvidedOptions& options,
                                                     ProvidedNames names);

}  // namespace onnx_external
