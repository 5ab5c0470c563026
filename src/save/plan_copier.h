// Copies the data files of a plan into the staging folder: in parallel, largest first.
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
  std::vector<std::uint32_t> crcs;  // index = SavePlan::ranges
  // Index = SavePlan::ranges: the conversion of the range produced infinities, or may have: a
  // resumed range was converted by the killed save.
  std::vector<bool> infinite;
  // The quantization errors of matrices, by the range of their codes. Without those that a killed
  // save or another process made.
  std::map<std::uint32_t, QuantizationError> errors;
  // Index = SavePlan::files; lower-case hex; empty texts without Checksum::kSha1.
  std::vector<std::string> sha1s;
};

// Writes every file of the plan into `job.data`, except the ranges in `job.done`, which are written
// already or by other processes. Checks the CRCs that the sources record where that needs no second
// reading, and syncs the files if the options say so. The bytes do not depend on the number of
// threads. The error is that of the first step (save/copy_steps.h) that fails, whichever thread
// fails first.
[[nodiscard]] Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter);

// The lower-case hex SHA-1 of a file that is complete.
[[nodiscard]] Result<std::string> data_file_sha1(const Directory& data, const PlannedFile& planned);

}  // namespace onnx_external
