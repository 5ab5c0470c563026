// Copies the data ranges of a plan into files in the staging folder, in parallel and largest first.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/progress_meter.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/copy_steps.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

struct CopiedFiles {
  std::vector<std::uint32_t> crcs;  // same indices as SavePlan::ranges
  // For each range in SavePlan::ranges, whether its conversion may have produced infinities. This
  // is not known exactly for ranges that a killed save converted.
  std::vector<bool> infinite;
  // The quantization error of each matrix, by the index of the range with its codes. Matrices that
  // a killed save or another process quantized are not included.
  std::map<std::uint32_t, QuantizationError> errors;
  // For each file in SavePlan::files, the SHA-1 in lower-case hex; empty strings without
  // Checksum::kSha1.
  std::vector<std::string> sha1s;
};

// Writes every file of the plan to `job.data`, except the ranges in `job.done`, which are already
// written or will be written by other processes. Checks the CRCs that the sources record, unless
// this would require reading the data twice, and syncs the files if the options say so. The written
// bytes do not depend on the number of threads. Returns the error of the first step
// (save/copy_steps.h) that fails, regardless of which thread fails first.
[[nodiscard]] Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter);

}  // namespace onnx_external
