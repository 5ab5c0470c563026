// Data files of a replaced model that the new one keeps (SavePlan::kept).
#pragma once

#include <filesystem>

#include "base/directory.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/journal.h"

namespace onnx_external {

// Why files of the old model cannot be kept where Directory::try_lock() has no answer.
[[nodiscard]] Error no_locks_error(const Directory& out);

// The same parts, and those of kept files with their CRCs.
[[nodiscard]] WrittenParts with_kept_files(const SavePlan& plan, WrittenParts written);

// Those that are not kept.
[[nodiscard]] std::vector<PlannedFile> files_to_write(const SavePlan& plan);

// True when the kept files are what they were when they were compared; to be called once no other
// save can remove them. Their names are made durable if asked. kCorrupt, kIo.
[[nodiscard]] Status check_kept_files(const SavePlan& plan, const std::filesystem::path& out_dir,
                                      Sync sync);

}  // namespace onnx_external
