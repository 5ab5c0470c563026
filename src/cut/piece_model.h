// Builds the model file of a piece.
#pragma once

#include <string>

#include "onnx/model_text.h"
#include "onnx_external/cut.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct PieceModel {
  // The segments of the piece's file; those of kModelFile are ranges of the parent's file.
  ModelSegments segments;
  CutReport report;
};

// `note`: the entry kCutFromKey; empty = none. Errors as for cut_model().
[[nodiscard]] Result<PieceModel> make_piece_model(const Model& model, const CutOptions& options,
                                                  const std::string& note);

}  // namespace onnx_external
