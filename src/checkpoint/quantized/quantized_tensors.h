// Lists each quantized weight, which is stored as codes, scales and zero points, as one tensor of
// floats.
#pragma once

#include <cstddef>
#include <filesystem>

#include "checkpoint/quantized/quant_settings.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether any tensor from index `first` on has a name that is typical of the scales of
// quantized weights. Reads no bytes.
[[nodiscard]] bool may_be_quantized(const FileContents& all, std::size_t first);

// Finds the quantized weights among the tensors from index `first` on. Lists a float32 tensor for
// each of them instead of its stored parts, which are kept in FileContents::stored. Tensors of
// unsupported methods stay unchanged; the mapping rejects them with an error that names the method.
// Errors: kCorrupt, kUnsupported or kAmbiguous for parts that are inconsistent with each other or
// with the settings.
[[nodiscard]] Status list_quantized_as_floats(FileContents& all, std::size_t first,
                                              const std::shared_ptr<InflatedStorages>& inflated,
                                              const QuantSettings& settings);

// Returns a copy of the matrix in which all storage indices are shifted by `storages`.
[[nodiscard]] std::shared_ptr<const QuantizedMatrix> behind(const QuantizedMatrix& matrix,
                                                            std::uint32_t storages);

}  // namespace onnx_external
