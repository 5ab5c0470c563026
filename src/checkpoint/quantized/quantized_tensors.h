// Lists each weight that a quantization library stored in parts as a tensor of floats.
#pragma once

#include <cstddef>
#include <filesystem>

#include "checkpoint/quantized/quant_settings.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether a tensor from index `first` on has a name that is typical of scales of weights.
// Reads no bytes.
[[nodiscard]] bool may_be_quantized(const FileContents& all, std::size_t first);

// Puts a float32 tensor into the place of the stored parts of each quantized weight among the
// tensors from index `first` on, and keeps the parts in FileContents::stored. Tensors of
// unsupported methods stay unchanged; the mapping rejects them by name. kCorrupt, kUnsupported or
// kAmbiguous for parts that do not fit each other or the settings.
[[nodiscard]] Status list_quantized_as_floats(FileContents& all, std::size_t first,
                                              const std::shared_ptr<InflatedStorages>& inflated,
                                              const QuantSettings& settings);

// A copy whose storages have the indices that they get behind `storages` others.
[[nodiscard]] std::shared_ptr<const QuantizedMatrix> behind(const QuantizedMatrix& matrix,
                                                            std::uint32_t storages);

}  // namespace onnx_external
