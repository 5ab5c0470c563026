// Builds the model file of a piece that is cut out of another model.
#pragma once

#include <string>

#include "onnx/model_text.h"
#include "onnx_external/cut.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct PieceModel {
  // The segments of the piece's file. Segments with kModelFile are ranges in the file of the model
  // that the piece is cut from.
  ModelSegments segments;
  CutReport report;
};

// Builds the piece. `note` is the value of the metadata entry kCutFromKey (parent_note.h); if
// empty, there is no such entry. Errors are those of cut_model().
[[nodiscard]] Result<PieceModel> make_piece_model(const Model& model, const CutOptions& options,
                                                  const std::string& note);

}  // namespace onnx_external
