// Finds and reads the bytes of planned tensors, for all code that copies or compares them. For
// tensors of a checkpoint, these are the bytes after the recipe and, if planned, after conversion
// or quantization.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/byte_comparer.h"
#include "base/file.h"
#include "base/memory_runs.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/tiled_view.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/row_packer.h"
#include "tensor/derived_view.h"

namespace onnx_external {

// The models from which the tensors of a plan come: a single model, or the models of a set. They
// must outlive this object. Converts implicitly from a single model.
class SourceModels {
 public:
  SourceModels(const Model& model) : models_(&model, 1) {}
  SourceModels(std::span<const Model> models) : models_(models) {}

  [[nodiscard]] const Model& of(const PlannedTensor& tensor) const {
    return models_[tensor.model_index];
  }
  [[nodiscard]] std::span<const Model> all() const { return models_; }

 private:
  std::span<const Model> models_;
};

// Returns the tensor that is written to a range.
[[nodiscard]] inline const PlannedTensor& tensor_of(const SavePlan& plan, std::uint32_t range) {
  return plan.tensors[plan.ranges[range].source_tensor];
}

// --- tensors of a checkpoint: a PlannedTensor, or a WantedTensor of the verification -----------

// Returns the view of the checkpoint's tensor that the functions below read.
[[nodiscard]] inline DerivedView planned_view(const Checkpoint& checkpoint, const auto& tensor) {
  return {checkpoint.tensors()[tensor.source_index], tensor.recipe};
}

// Returns the kind of storage that holds the bytes; kFile for tensors of the model.
[[nodiscard]] inline StorageKind kind_of_source(const Checkpoint& checkpoint, const auto& tensor) {
  return tensor.source == TensorSource::kCheckpoint
             ? checkpoint.storages()[checkpoint.tensors()[tensor.source_index].storage].kind
             : StorageKind::kFile;
}

// If the bytes are produced on demand, keeps them in memory during the lifetime of the result.
// Requires: the calling thread holds no other such bytes.
[[nodiscard]] inline Result<MemoryRuns::Held> hold_planned(const Checkpoint& checkpoint,
                                                           const auto& tensor) {
  return tensor.source == TensorSource::kCheckpoint && checkpoint.nbytes(tensor.source_index) > 0
             ? CheckpointAccess::hold(checkpoint, checkpoint.tensors()[tensor.source_index])
             : MemoryRuns::Held();
}

// Reads bytes of a planned tensor, like Checkpoint::read() or Checkpoint::read_as(). Requires:
// `first` and `out` describe whole elements, unless the tensor is a part of a quantized matrix.
[[nodiscard]] inline Status read_planned(const Checkpoint& checkpoint, const auto& tensor,
                                         std::uint64_t first, std::span<std::byte> out) {
  const DerivedView view = planned_view(checkpoint, tensor);
  if (tensor.packed) {
    return read_packed(checkpoint, *view, tensor.cast_to, *tensor.packed, first, out);
  }
  return tensor.cast_to ? checkpoint.read_as(*view, *tensor.cast_to, first, out)
                        : checkpoint.read(*view, first, out);
}

// Returns a reader that reads in tiles if reading in order would be slow; otherwise nullopt.
[[nodiscard]] inline std::optional<TiledView> planned_tiles(const Checkpoint& checkpoint,
                                                            const auto& tensor) {
  return tensor.source == TensorSource::kCheckpoint && !tensor.packed
             ? TiledView::of(checkpoint, *planned_view(checkpoint, tensor), tensor.cast_to)
             : std::nullopt;
}

// Returns the range of a file that holds exactly the bytes of the tensor, if there is one.
[[nodiscard]] inline std::optional<FileRange> planned_range(const Checkpoint& checkpoint,
                                                            const auto& tensor) {
  return tensor.cast_to || tensor.packed
             ? std::nullopt
             : checkpoint.plain_range(*planned_view(checkpoint, tensor));
}

// Works like planned_range(), but also returns the range of kept codes to which a model can refer
// in place.
[[nodiscard]] inline std::optional<FileRange> linked_range(const Checkpoint& checkpoint,
                                                           const auto& tensor) {
  return tensor.packed
             ? stored_codes_range(checkpoint, *planned_view(checkpoint, tensor), *tensor.packed)
             : planned_range(checkpoint, tensor);
}

// Returns the CRC-32 that the checkpoint records for the bytes, or nullopt if there is none.
// Accepts every planned tensor.
[[nodiscard]] inline std::optional<std::uint32_t> recorded_crc_of(const Checkpoint& checkpoint,
                                                                  const auto& tensor) {
  return tensor.source != TensorSource::kCheckpoint || tensor.cast_to || tensor.packed
             ? std::nullopt
             : checkpoint.recorded_crc(*planned_view(checkpoint, tensor));
}

// --- tensors of any source ---------------------------------------------------------------------

struct RangeSource {
  // The file with the bytes; null if they are not a plain range, and must be read with
  // read_planned() or InlineReader.
  std::shared_ptr<const SourceFile> file;
  std::uint64_t offset = 0;
  std::optional<std::uint32_t> recorded_crc;  // as recorded by the checkpoint
};

// Returns the source of a tensor's bytes, after opening its file if necessary. Fails with kCorrupt
// if the model states a range that does not exist or does not have the tensor's size. Other errors
// as for open_external().
[[nodiscard]] Result<RangeSource> source_of(const PlannedTensor& tensor, const SourceModels& models,
                                            const Checkpoint& checkpoint);

// Returns a function that reads the bytes of a tensor from any source. The bytes must be read in
// order, in steps that are multiples of InlineReader::kStepMultiple. The arguments must outlive the
// function. The last step also fails with kCorrupt if a file of the model has changed. (The
// checkpoint's files are checked at the end of the save.)
[[nodiscard]] Result<ReadBytes> planned_reader(const PlannedTensor& tensor,
                                               const SourceModels& models,
                                               const Checkpoint& checkpoint);

// Compares the CRC-32 of data that was copied from a loaded model with the model's manifest, so
// that damaged data is detected. Fails with kCorrupt if `crc32` differs from the CRC-32 in the
// manifest; the message states the tensor and its file.
[[nodiscard]] Status check_recorded_crc(const PlannedTensor& tensor, const SourceModels& models,
                                        std::uint32_t crc32);

// Calls check_recorded_crc() for all tensors that were copied. `crcs` has the CRC-32 of each range
// in the plan.
[[nodiscard]] Status check_recorded_crcs(const SavePlan& plan, const SourceModels& models,
                                         std::span<const std::uint32_t> crcs);

}  // namespace onnx_external
