// Implements Layout::kLink, with which a model refers to byte ranges of existing files and nothing
// is copied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Determines the position of each range in the source files, and adds these files to the plan,
// without names. link_files() fills in the names.
class LinkedRanges {
 public:
  LinkedRanges(const SourceModels& models, const Checkpoint& checkpoint, SavePlan& plan)
      : models_(models), checkpoint_(checkpoint), plan_(plan) {}

  // Fills in file and offset of `range`, which holds the bytes of `tensor`. Fails with kUnsupported
  // if the bytes are not one plain range of a file, or are not aligned to the element type; the
  // message says why, and how to proceed.
  [[nodiscard]] Status place(const PlannedTensor& tensor, DataRange& range);

 private:
  [[nodiscard]] Status locate_in_checkpoint(const PlannedTensor& tensor, DataRange& range);
  [[nodiscard]] std::uint32_t add_file(std::uint64_t bytes);

  SourceModels models_;
  const Checkpoint& checkpoint_;
  SavePlan& plan_;
  std::map<std::uint32_t, std::uint32_t> by_checkpoint_file_;  // -> index into SavePlan::files
  // The files that hold the models' own data, by folder and location.
  std::map<std::pair<std::string, std::string>, std::uint32_t> by_location_;
};

// Determines, for Layout::kLink, the positions of the plan's ranges. Ranges that are bytes of the
// source files are linked, and all other ranges are placed in a new file. Errors are those of
// lay_out(). Requires: the ranges have no positions.
[[nodiscard]] Result<SavePlan> link_or_write(SavePlan plan, const SourceModels& models,
                                             const Checkpoint& checkpoint,
                                             const PlanOptions& options);

// Fills in, for Layout::kLink, the names of the files to which a model in `out_dir` refers,
// relative to that folder. These are files of the checkpoint, and files with the models' own
// external data. Plans with other layouts are returned unchanged. Fails with kInvalidArgument if a
// file is not in `out_dir` or below it, is a symbolic link or has several hard links (onnx rejects
// both), or has a name that cannot be a location. Other errors are kNotFound and kIo.
[[nodiscard]] Result<SavePlan> link_files(SavePlan plan, const SourceModels& models,
                                          const Checkpoint& checkpoint,
                                          const std::filesystem::path& out_dir);

}  // namespace onnx_external
