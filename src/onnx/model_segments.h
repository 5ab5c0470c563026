// Serializes a model with its edits as a list of segments: text in memory, and byte ranges that are
// copied when the model is written.
#pragma once

#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the bytes that protobuf would write for the edited model: fields in ascending order,
// unknown ones last. Data that was left in the model's file, and deferred data, become segments of
// their own. Memory: twice the text. kUnsupported if the file, or the serialized model without
// edits, would exceed kMaxMessageBytes.
[[nodiscard]] Result<ModelSegments> model_segments(const Model& model, ModelEdits edits = {});

}  // namespace onnx_external
