// Checks bytes that were copied from the loaded model's own data against the CRC-32s in that
// model's manifest, so that a save does not copy damaged data unnoticed.
#pragma once

#include <cstdint>
#include <span>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// kCorrupt, with the tensor and its file, if `crc32` differs from the one in the manifest.
[[nodiscard]] Status check_recorded_crc(const PlannedTensor& tensor, const SourceModels& models,
                                        std::uint32_t crc32);

// Does the same for all tensors that were copied. `crcs`: the CRC-32 of each range in the plan.
[[nodiscard]] Status check_recorded_crcs(const SavePlan& plan, const SourceModels& models,
                                         std::span<const std::uint32_t> crcs);

}  // namespace onnx_external
