// A model file as a stranger reads it: every tensor in it, whatever its entry says.
//
// Model::load refuses a model whose external entries break the rules; verification must list them.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct ModelFile {
  std::shared_ptr<const SourceFile> file;  // held open, so that it can be told from another one
  onnx::ModelProto proto;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  std::filesystem::path folder;  // where locations start
  std::string name;              // of the file in it
};

// Errors as Model::load's, but for the tensors in it.
[[nodiscard]] Result<ModelFile> read_model_file(const std::filesystem::path& path);

// While a model is being replaced by a save, its data goes. Who finds some missing reads the path
// again, at most so many times.
inline constexpr int kMaxModelReads = 100;

// False when the path names another file by now, or none.
[[nodiscard]] bool is_current(const std::filesystem::path& path, const ModelFile& model);

// A tensor anywhere in a model. Points into the ModelProto, which must outlive it.
struct ListedTensor {
  const onnx::TensorProto* proto = nullptr;
  std::string_view name;  // its own, or that of the node whose attribute it is
  std::uint32_t graph = 0;
  bool is_initializer = false;  // else: part of a sparse initializer, or a node's attribute
};

// All tensors, graph by graph: the initializers of a graph, then what its nodes hold, each subgraph
// where its node stands. Graphs are numbered as Slot::graph is.
[[nodiscard]] std::vector<ListedTensor> list_tensors(const onnx::ModelProto& model);

[[nodiscard]] inline bool is_external(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

[[nodiscard]] bool has_inline_data(const onnx::TensorProto& tensor);

// The bytes of an inline tensor as raw_data would hold them, also when it uses a typed field.
// kUnsupported for STRING and unknown types; kCorrupt when they are not as many as dims say.
[[nodiscard]] Result<std::string> inline_bytes(const onnx::TensorProto& tensor);

}  // namespace onnx_external
