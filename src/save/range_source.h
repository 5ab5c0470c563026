// Locates the bytes of a planned tensor, for all code that copies or compares them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/byte_comparer.h"
#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

struct RangeSource {
  std::shared_ptr<const SourceFile> file;  // null: not a plain range; read_planned(), InlineReader
  std::uint64_t offset = 0;
  std::optional<std::uint32_t> recorded_crc;  // by the checkpoint
};

// Opens the file if necessary. kCorrupt when the model states a range that does not exist or does
// not have the tensor's size; errors as open_external().
[[nodiscard]] Result<RangeSource> source_of(const PlannedTensor& tensor, const SourceModels& models,
                                            const Checkpoint& checkpoint);

// Returns a function that reads these bytes from any source. Steps must be in order, and multiples
// of InlineReader::kStepMultiple. The arguments must outlive it. kCorrupt also when a file of the
// model has changed by the time of the last step; the checkpoint's files are checked when all is
// done.
[[nodiscard]] Result<ReadBytes> planned_reader(const PlannedTensor& tensor,
                                               const SourceModels& models,
                                               const Checkpoint& checkpoint);

}  // namespace onnx_external
