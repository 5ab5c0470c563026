// Reads a ModelProto from a file, but leaves large tensor data in the file. The errors recognize
// files that users often pass by mistake.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <memory>

#include "base/file.h"
#include "onnx/cut_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct LoadedModel {
  // In place of data of at least kMinCutBytes, the message has placeholders, and the data stays in
  // the file. The message is on an arena of its own, so that a large graph is freed at once.
  std::shared_ptr<onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  std::shared_ptr<const SourceFile> file;
};

// Memory: the size of the model without the data of its tensors, and twice that during parsing.
// Errors as for Model::load.
[[nodiscard]] Result<LoadedModel> load_model_file(const std::filesystem::path& path);

}  // namespace onnx_external
