// Layout::kLink copies nothing: its parts have their places in files that exist already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

// Gives the parts of a plan their places in the source files, and lists these in the plan, without
// names (link_files() finds those).
class LinkedPlaces {
 public:
  LinkedPlaces(const SourceModels& models, const Checkpoint& checkpoint, SavePlan& plan)
      : models_(models), checkpoint_(checkpoint), plan_(plan) {}

  // Fills in file and offset of the part whose bytes are those of `tensor`. kUnsupported when they
  // are no plain range, or not aligned to the element type: says why, and what to do.
  [[nodiscard]] Status place(const PlannedTensor& tensor, PlannedPart& part);

 private:
  [[nodiscard]] Status place_in_checkpoint(const PlannedTensor& tensor, PlannedPart& part);
  [[nodiscard]] std::uint32_t add_file(std::uint64_t bytes);

  SourceModels models_;
  const Checkpoint& checkpoint_;
  SavePlan& plan_;
  std::map<std::uint32_t, std::uint32_t> by_checkpoint_file_;  // -> index into SavePlan::files
  // Of the given graphs' own data: by folder and location.
  std::map<std::pair<std::string, std::string>, std::uint32_t> by_location_;
};

// With Layout::kLink, finds out how a model in `out_dir` spells the files that it refers to: the
// checkpoint's, and those of data that came with the graph. Other plans come back as they are.
// kInvalidArgument when a file stands neither in that folder nor below it, is a symbolic link or
// has several links (onnx refuses both), or has a name that no location may have; kNotFound, kIo.
[[nodiscard]] Result<SavePlan> link_files(SavePlan plan, const SourceModels& models,
                                          const Checkpoint& checkpoint,
                                          const std::filesystem::path& out_dir);

}  // namespace onnx_external
