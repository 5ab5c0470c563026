// A model with its edits as the bytes of a file.
#pragma once

#include "onnx/model_edits.h"
#include "onnx/model_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// What protobuf would write for a model that was changed so: fields by their numbers, unknown ones
// last. Messages without an edit inside are written by protobuf itself. Data that was left in the
// file of the model, and deferred data, are pieces of their own. Memory: the text.
// kUnsupported when the file would pass kMaxMessageBytes.
[[nodiscard]] Result<ModelPieces> model_pieces(const Model& model, ModelEdits edits = {});

}  // namespace onnx_external
