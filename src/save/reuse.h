// Data files of a replaced model that the new one reuses (SavePlan::reused).
#pragma once

#include <filesystem>

#include "base/directory.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/journal.h"
#include "save/source_models.h"

namespace onnx_external {

// For a save that replaces a model: finds the files of the plan whose bytes stand already in data
// files of that model, and lets them stay there (SavePlan::reused). Such a file has the same name
// but for the number of its generation, and is read beside the tensors and compared byte by byte,
// up to the first difference; where both sides have a CRC-32 on record and these differ, nothing is
// read. With Sync::kFiles the old files are synced and dropped from the page cache first, so that
// what is compared comes from the disk. Without an old model, its manifest or such files the plan
// comes back as it is. The result does not depend on the number of threads. kIo, kCorrupt (the
// sources), kCancelled; kInvalidArgument with a team; kUnsupported where the file system has no
// locks, as nothing keeps another save from removing the files then.
[[nodiscard]] Result<SavePlan> reuse_equal_files(SavePlan plan, const SourceModels& models,
                                                 const Checkpoint& checkpoint,
                                                 const std::filesystem::path& out_dir,
                                                 const WriteOptions& options);

// Why files of the old model cannot be reused where Directory::try_lock() has no answer.
[[nodiscard]] Error no_locks_error(const Directory& out);

// The same parts, and those of reused files with their CRCs.
[[nodiscard]] WrittenParts with_reused_files(const SavePlan& plan, WrittenParts written);

// Those that are not reused.
[[nodiscard]] std::vector<PlannedFile> files_to_write(const SavePlan& plan);

// True when the reused files are what they were when they were compared; to be called once no other
// save can remove them. Their names are made durable if asked. kCorrupt, kIo.
[[nodiscard]] Status check_reused_files(const SavePlan& plan, const std::filesystem::path& out_dir,
                                        Sync sync);

}  // namespace onnx_external
