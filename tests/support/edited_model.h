// Writes a model with its edits and parses the result, as a reader of the file would.
#pragma once

#include <string>
#include <utility>

#include "base/try.h"
#include "onnx/model_access.h"
#include "onnx/model_segments.h"
#include "onnx_external/model.h"

namespace onnx_external {

inline Result<std::string> edited_file(const Model& model, ModelEdits edits) {
  TRY_ASSIGN(auto pieces, model_segments(model, std::move(edits)));
  return join_segments(std::move(pieces), ModelAccess::cuts(model));
}

inline Result<Model> edited_model(const Model& model, ModelEdits edits) {
  TRY_ASSIGN(const auto file, edited_file(model, std::move(edits)));
  onnx::ModelProto proto;
  if (!proto.ParseFromString(file)) {
    return fail(ErrorCode::kCorrupt, "protobuf cannot parse it");
  }
  return Model::from_proto(std::move(proto), model.source_dir());
}

}  // namespace onnx_external
