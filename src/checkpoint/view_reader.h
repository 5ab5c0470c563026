// The elements of a tensor in row-major order, whatever their form in its storage.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/contents.h"
#include "onnx_external/checkpoint.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// True when the bytes of a number must be reversed to be little-endian.
[[nodiscard]] bool needs_swap(const Storage& storage, DType dtype);

// Reads bytes of a storage that is not computed, inflated first where it is compressed.
[[nodiscard]] Status read_file_storage(std::uint32_t index, const Storage& storage,
                                       const SourceFile& file, InflatedStorages& inflated,
                                       std::uint64_t offset, std::span<std::byte> out);

// Fills `out` with the bytes from `first` on of the contiguous, little-endian, row-major tensor.
// `read_storage` reads bytes of the (uncompressed) storage. Memory as Checkpoint::read has it.
// Requires: the range lies inside the tensor, the view inside its storage.
[[nodiscard]] Status read_view(const TensorView& view, const Storage& storage,
                               const ReadSource& read_storage, std::uint64_t first,
                               std::span<std::byte> out);

// The same for a part that is still being put together: a source of the bytes of the contiguous
// tensor. It keeps the file and `inflated` alive and stays valid when `part` goes.
[[nodiscard]] ReadSource view_source(const CheckpointPart& part, const TensorView& view,
                                     std::shared_ptr<InflatedStorages> inflated);

}  // namespace onnx_external
