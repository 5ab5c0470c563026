// Reads a ModelProto from a file, but leaves large tensor data in the file. Files that
// users often pass by mistake are recognized, and the error message says what they are.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <memory>

#include "base/file.h"
#include "onnx/cut_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct LoadedModel {
  // The message, in which placeholders replace data of at least kMinCutBytes, which stays in the
  // file. The message has its own arena, so that a large graph is freed quickly.
  std::shared_ptr<onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  std::shared_ptr<const SourceFile> file;
};

// Loads a model. Needs memory for the model without the data of its tensors, and twice as much
// during parsing. Errors as for Model::load().
[[nodiscard]] Result<LoadedModel> load_model_file(const std::filesystem::path& path);

}  // namespace onnx_external
