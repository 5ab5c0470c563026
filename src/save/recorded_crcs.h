// Checks copied bytes of the loaded model's own data against the CRC-32 in that model's manifest,
// so that a save does not pass damage on.
#pragma once

#include <cstdint>
#include <span>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// kCorrupt, with the tensor and its file, when `crc32` is not the one that the manifest records.
[[nodiscard]] Status check_recorded_crc(const PlannedTensor& tensor, const SourceModels& models,
                                        std::uint32_t crc32);

// The same for all tensors that were copied. `crcs`: of each range of the plan.
[[nodiscard]] Status check_recorded_crcs(const SavePlan& plan, const SourceModels& models,
                                         std::span<const std::uint32_t> crcs);

}  // namespace onnx_external
