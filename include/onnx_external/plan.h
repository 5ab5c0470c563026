// Where every byte of a save goes: decided before anything is written; a pure value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Integer tensors of rank <= 1 up to this many bytes stay inline: ONNX Runtime cannot read shapes,
// axes, pads and the like from external data.
inline constexpr std::uint64_t kMaxInlineIntegerBytes = 1024;

enum class TensorSource : std::uint8_t {
  kCheckpoint,     // source_index into Checkpoint::tensors()
  kModelExternal,  // source_index into Model::external_tensors(): copied along
};

// One initializer of the model that will be written.
struct PlannedTensor {
  std::string name;
  std::uint32_t slot = Attachment::kNoSlot;  // kNoSlot for kept keys and kModelExternal
  TensorSource source = TensorSource::kCheckpoint;
  std::size_t source_index = 0;
  std::string key;  // the checkpoint's name for it; empty for kModelExternal
  std::optional<Rule> rule;
  std::int32_t data_type = 0;
  Shape dims;
  std::uint64_t nbytes = 0;
  // Index into SavePlan::files; nothing = inline in the model.
  std::optional<std::uint32_t> file;
  std::uint64_t offset = 0;  // in that file
};

// One data file; several tensors share one when they are the same bytes (tied weights).
struct PlannedFile {
  std::string name;  // inside SavePlan::data_dir
  std::uint64_t bytes = 0;
  std::size_t source_tensor = 0;  // index into SavePlan::tensors: the one whose bytes are written
};

struct SavePlan {
  std::string model_name;  // "model.onnx"
  std::string data_dir;    // "initializers", or "initializers.N" when replacing a model
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedFile> files;
  std::uint64_t bytes = 0;  // of all data files
};

struct PlanOptions {
  std::string model_name = "model.onnx";
  std::string data_dir = "initializers";
};

// kInvalidArgument for names that are not plain file names; kUnsupported for a tensor that ONNX
// cannot hold; kCorrupt as tensor.h.
[[nodiscard]] Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const PlanOptions& options);

// A file name for a tensor name: unchanged when it is safe everywhere, else "<escaped, cut>-<16 hex
// digits of its SHA-256>". `names` get distinct results, also on a case-insensitive file system;
// the result for a set of names does not depend on their order.
[[nodiscard]] std::vector<std::string> data_file_names(const std::vector<std::string>& names);

}  // namespace onnx_external
