// Writes a model file from its segments.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx/cut_tensors.h"
#include "onnx/model_text.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/identity.h"

namespace onnx_external {

// The place of each DeferredBytes in the file; index = its number.
[[nodiscard]] std::vector<std::uint64_t> deferred_offsets(const ModelSegments& segments);

struct ModelFileJob {
  const Directory& folder;
  const std::string& name;
  const ModelSegments& segments;
  const CutTensors& cuts;  // of the model that the segments make
  // CRC-32 of each DeferredBytes; index = its number. If the model has some, the file exists
  // already and contains them.
  std::span<const std::uint32_t> deferred_crcs;
  const WriteOptions& options;
};

// Writes all segments that are not deferred, and returns the identity of the model. Memory: a
// buffer of kCopyBufferBytes. kIo; kCorrupt when the given model's file changed; kCancelled.
[[nodiscard]] Result<ModelIdentity> write_model_file(const ModelFileJob& job);

}  // namespace onnx_external
