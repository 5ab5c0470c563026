// A model with its edits as the bytes of a file.
#pragma once

#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// What protobuf would write for a model that was changed in this way: fields in the order of their
// numbers, unknown ones last. Data that was left in the file of the model, and deferred data, are
// segments of their own. Memory: the text, twice. kUnsupported if the file, or what protobuf writes
// for the unchanged model, would exceed kMaxMessageBytes.
[[nodiscard]] Result<ModelSegments> model_segments(const Model& model, ModelEdits edits = {});

}  // namespace onnx_external
