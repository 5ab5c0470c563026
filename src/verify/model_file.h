// Reads a model file for the verifier, even if the entries of some tensors are invalid.
//
// Model::load() fails for a model with invalid external_data entries, but verification must list
// all of these entries.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "onnx/cut_tensors.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

struct ModelFile {
  std::shared_ptr<const SourceFile> file;  // kept open so that replacing the file can be detected
  std::shared_ptr<const onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  std::filesystem::path folder;  // locations are relative to this folder
  std::string name;              // file name in that folder
};

// Reads a model file. Errors as for Model::load(), except errors in tensors.
[[nodiscard]] Result<ModelFile> read_model_file(const std::filesystem::path& path,
                                                DropCache drop_cache = DropCache::kNo);

// The maximum number of times that a model is read. A save that replaces a model removes the old
// data, so if a data file is missing, the verifier reads the model again.
inline constexpr int kMaxModelReads = 100;

// Returns false if the path now refers to another file, or to none.
[[nodiscard]] bool is_current(const std::filesystem::path& path, const ModelFile& model);

}  // namespace onnx_external
