// Serializes a model with its edits as a list of segments, which are bytes in memory ("text") and
// byte ranges that are copied when the model is written.
#pragma once

#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the bytes that protobuf would write for the edited model, with fields in ascending order
// and unknown fields last. Data that was left in the model's file, and deferred data, are separate
// segments. Needs memory for twice the text. Fails with kUnsupported if the file, or the serialized
// model without edits, would exceed kMaxMessageBytes.
[[nodiscard]] Result<ModelSegments> model_segments(const Model& model, ModelEdits edits = {});

}  // namespace onnx_external
