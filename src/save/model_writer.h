// Writes a model file from its segments (onnx/model_segments.h).
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
