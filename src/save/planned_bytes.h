// The bytes of a planned tensor that comes from the checkpoint, converted if the plan says so.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// As Checkpoint::read() and read_as(); whole elements.
[[nodiscard]] inline Status read_planned(const Checkpoint& checkpoint, const PlannedTensor& tensor,
                                         std::uint64_t first, std::span<std::byte> out) {
  return tensor.cast_to ? checkpoint.read_as(tensor.source_index, *tensor.cast_to, first, out)
                        : checkpoint.read(tensor.source_index, first, out);
}

// The range of a file that holds just these bytes.
[[nodiscard]] inline std::optional<FileRange> planned_range(const Checkpoint& checkpoint,
                                                            const PlannedTensor& tensor) {
  return tensor.cast_to ? std::nullopt : checkpoint.plain_range(tensor.source_index);
}

// Their CRC-32, where a checkpoint records it; any planned tensor may be asked for.
[[nodiscard]] inline std::optional<std::uint32_t> recorded_crc_of(const Checkpoint& checkpoint,
                                                                  const PlannedTensor& tensor) {
  return tensor.source != TensorSource::kCheckpoint || tensor.cast_to
             ? std::nullopt
             : checkpoint.recorded_crc(tensor.source_index);
}

}  // namespace onnx_external
