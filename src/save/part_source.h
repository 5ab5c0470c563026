// Where the bytes of a planned tensor stand: the one answer for all who copy or compare them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct PartSource {
  std::shared_ptr<const SourceFile> file;  // null: no plain range; read_planned(), InlineReader
  std::uint64_t offset = 0;
  std::optional<std::uint32_t> recorded_crc;  // by the checkpoint
};

// Opens what is not open yet. kCorrupt when the model states a range that is not there, or not of
// the tensor's size; errors as open_external().
[[nodiscard]] Result<PartSource> source_of(const PlannedTensor& tensor, const Model& model,
                                           const Checkpoint& checkpoint);

}  // namespace onnx_external
