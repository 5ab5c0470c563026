// A checkpoint of tensors that are in no checkpoint file (loose_tensors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/loose_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class LooseNames : std::uint8_t {
  kUnique,  // keys of a checkpoint
  kAny,     // tensors of a model, told apart by their index
};

// As checkpoint_of().
[[nodiscard]] Result<Checkpoint> loose_checkpoint(std::vector<LooseTensor> tensors,
                                                  const LooseOptions& options, LooseNames names);

}  // namespace onnx_external
