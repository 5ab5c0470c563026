// A model file as an independent reader sees it: every tensor in it, even if its entry is invalid.
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
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

struct ModelFile {
  std::shared_ptr<const SourceFile> file;  // kept open, so that a replaced file can be recognized
  std::shared_ptr<const onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  std::filesystem::path folder;  // locations are relative to it
  std::string name;              // in that folder
};

// Errors as for Model::load, except those about tensors.
[[nodiscard]] Result<ModelFile> read_model_file(const std::filesystem::path& path,
                                                DropCache drop_cache = DropCache::kNo);

// While a save replaces a model, the old data is removed. A reader that misses a file reads the
// path again, at most this many times.
inline constexpr int kMaxModelReads = 100;

// Returns false if the path meanwhile names another file, or none.
[[nodiscard]] bool is_current(const std::filesystem::path& path, const ModelFile& model);

}  // namespace onnx_external
