// Builds the model file and the manifest of a planned model, and writes model files from their
// segments (onnx/model_segments.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx/cut_tensors.h"
#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/identity.h"
#include "save/manifest.h"

namespace onnx_external {

// Builds one model of a plan. `model_index` is its index in SavePlan::models. All arguments must
// outlive this object. For use by one thread at a time.
class ModelBuilder {
 public:
  ModelBuilder(const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
               std::uint32_t model_index = 0)
      : plan_(plan), model_(model), checkpoint_(checkpoint), model_index_(model_index) {}

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const std::string& name() const { return plan_.models[model_index_].name; }

  // Returns the model file. Reads the planned tensors without a range, which stay inline. `sha1s`
  // has the SHA-1 of each file in the plan, or empty strings if no checksums are recorded. With
  // Layout::kInline, the bytes of the ranges are deferred segments, numbered by range.
  [[nodiscard]] Result<ModelSegments> build(MatchedInputs inputs,
                                            const std::vector<std::string>& sha1s);

  // Returns the CRC-32 of each planned tensor without a range, by index into SavePlan::tensors.
  // Requires: build() succeeded.
  [[nodiscard]] const std::map<std::size_t, std::uint32_t>& inline_crcs() const {
    return inline_crcs_;
  }

  // Returns the manifest for the model that build() returned. `written` has the identities of all
  // models in the plan. `crcs` has the CRC-32 of each range in the plan, and is ignored with
  // Layout::kLink. Requires: build() succeeded.
  [[nodiscard]] std::string manifest_for(std::span<const ModelIdentity> written,
                                         std::span<const std::uint32_t> crcs,
                                         const std::map<std::size_t, Overflow>& overflows) const;

 private:
  // The changes that put planned tensors into the model: edits for tensors that the model has, and
  // attachments for all other tensors.
  struct Placement {
    ModelEdits edits;
    std::vector<Attachment> attachments;
  };

  [[nodiscard]] Result<TensorData> data_of(std::size_t number,
                                           const std::vector<std::string>& sha1s);
  [[nodiscard]] Result<std::string> read_inline(const PlannedTensor& tensor) const;
  void place(const PlannedTensor& tensor, TensorData data, Placement& placed) const;
  [[nodiscard]] ManifestTensor record_of(std::size_t number,
                                         std::span<const std::uint32_t> crcs) const;
  [[nodiscard]] std::optional<std::uint32_t> crc_of(std::size_t number,
                                                    std::span<const std::uint32_t> crcs) const;
  [[nodiscard]] std::vector<LinkedFile> linked_files() const;
  [[nodiscard]] bool is_own(std::size_t number) const {
    return plan_.tensors[number].model_index == model_index_;
  }

  const SavePlan& plan_;
  const Model& model_;
  const Checkpoint& checkpoint_;
  std::uint32_t model_index_;
  // The CRC-32s of the planned tensors without a range.
  std::map<std::size_t, std::uint32_t> inline_crcs_;
};

// Returns the offset of each DeferredBytes in the file, by its number.
[[nodiscard]] std::vector<std::uint64_t> deferred_offsets(const ModelSegments& segments);

struct ModelFileJob {
  const Directory& folder;
  const std::string& name;
  const ModelSegments& segments;
  const CutTensors& cuts;  // of the model from which the segments were made
  // The CRC-32 of each DeferredBytes, by its number. If the model has any, the file exists already
  // and contains their bytes.
  std::span<const std::uint32_t> deferred_crcs;
  const WriteOptions& options;
};

// Writes all segments that are not deferred, and returns the identity of the model. Memory: a
// buffer of kCopyBufferBytes. Errors: kIo; kCorrupt if the file of the loaded model has changed;
// kCancelled.
[[nodiscard]] Result<ModelIdentity> write_model_file(const ModelFileJob& job);

}  // namespace onnx_external
