// Reads a model file for the verifier, even if the entries of some tensors are invalid.
//
// Model::load rejects a model whose external_data entries break the rules; verification must list
// all of these entries instead.
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

// Errors as for Model::load, except errors in tensors.
[[nodiscard]] Result<ModelFile> read_model_file(const std::filesystem::path& path,
                                                DropCache drop_cache = DropCache::kNo);

// When a save replaces a model, the old data is removed. If a reader then does not find a data
// file, it reads the model again, at most this many times.
inline constexpr int kMaxModelReads = 100;

// Returns false if the path now refers to another file, or to none.
[[nodiscard]] bool is_current(const std::filesystem::path& path, const ModelFile& model);

}  // namespace onnx_external
