// Builds the model file of a piece that is cut out of another model.
#pragma once

#include <string>

#include "onnx/model_text.h"
#include "onnx_external/cut.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct PieceModel {
  // The segments of the piece's file; segments of kModelFile are ranges of the file of the parent,
  // the model that the piece is cut from.
  ModelSegments segments;
  CutReport report;
};

// `note`: the metadata entry kCutFromKey (parent_note.h); empty = no entry. Errors as for
// cut_model().
[[nodiscard]] Result<PieceModel> make_piece_model(const Model& model, const CutOptions& options,
                                                  const std::string& note);

}  // namespace onnx_external
