// A model file as a stranger reads it: every tensor in it, whatever its entry says.
//
// Model::load refuses a model whose external entries break the rules; verification must list them.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "onnx/cut_tensors.h"
#include "onnx/tensor_list.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

struct ModelFile {
  std::shared_ptr<const SourceFile> file;  // held open, so that it can be told from another one
  std::shared_ptr<const onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  std::filesystem::path folder;  // where locations start
  std::string name;              // in that folder
};

// Errors as Model::load's, but for the tensors in it.
[[nodiscard]] Result<ModelFile> read_model_file(const std::filesystem::path& path,
                                                DropCache drop_cache = DropCache::kNo);

// While a model is being replaced by a save, its data goes. Who finds some missing reads the path
// again, at most so many times.
inline constexpr int kMaxModelReads = 100;

// False when the path names another file by now, or none.
[[nodiscard]] bool is_current(const std::filesystem::path& path, const ModelFile& model);

}  // namespace onnx_external
