// From a plan to the model that is written, and to its manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/generations.h"
#include "save/manifest.h"

namespace onnx_external {

// One model of a plan: `member` is its place in SavePlan::models. Refers to what it is given. One
// thread at a time.
class ModelBuilder {
 public:
  ModelBuilder(const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
               std::uint32_t member = 0)
      : plan_(plan), model_(model), checkpoint_(checkpoint), member_(member) {}

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const std::string& name() const { return plan_.models[member_].name; }

  // The model file. `sha1s`: of each file of the plan; empty where no checksums are recorded. With
  // Layout::kInline the bytes of the parts are deferred, numbered by part. Reads the tensors that
  // the plan has without a part.
  [[nodiscard]] Result<ModelSegments> build(MatchedInputs inputs,
                                            const std::vector<std::string>& sha1s);

  // The CRC-32 of each planned tensor without a part, by index into SavePlan::tensors. Requires:
  // build() succeeded.
  [[nodiscard]] const std::map<std::size_t, std::uint32_t>& inline_crcs() const {
    return inline_crcs_;
  }

  // The manifest of the model that build() made. `written`: of all models of the plan; `crcs`: of
  // each part of the plan; not read with Layout::kLink. Requires: build() succeeded.
  [[nodiscard]] std::string manifest_for(std::span<const ModelIdentity> written,
                                         std::span<const std::uint32_t> crcs,
                                         const std::map<std::size_t, Overflow>& overflows) const;

 private:
  // What the model already has is moved; the rest is attached.
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
    return plan_.tensors[number].member == member_;
  }

  const SavePlan& plan_;
  const Model& model_;
  const Checkpoint& checkpoint_;
  std::uint32_t member_;
  std::map<std::size_t, std::uint32_t> inline_crcs_;  // of the planned tensors without a part
};

}  // namespace onnx_external
