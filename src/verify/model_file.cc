#include "verify/model_file.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "onnx/load.h"
#include "onnx_external/tensor.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{1} << 20;

class TensorLister {
 public:
  std::vector<ListedTensor> list(const onnx::ModelProto& model) {
    visit_graph(model.graph());
    for (const auto& function : model.functions()) {
      visit_nodes(function.node(), 0);
    }
    for (const auto& training : model.training_info()) {
      visit_graph(training.initialization());
      visit_graph(training.algorithm());
    }
    return std::move(found_);
  }

 private:
  void visit_graph(const onnx::GraphProto& graph) {
    const std::uint32_t number = graphs_++;
    for (const auto& tensor : graph.initializer()) {
      found_.push_back({&tensor, tensor.name(), number, true});
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      visit_sparse(sparse, sparse.values().name(), number);
    }
    visit_nodes(graph.node(), number);
  }

  template <typename Nodes>
  void visit_nodes(const Nodes& nodes, std::uint32_t graph) {
    for (const auto& node : nodes) {
      const std::string_view name =
          node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
      for (const auto& attribute : node.attribute()) {
        visit_attribute(attribute, name, graph);
      }
    }
  }

  void visit_attribute(const onnx::AttributeProto& attribute, std::string_view node,
                       std::uint32_t graph) {
    if (attribute.has_t()) {
      found_.push_back({&attribute.t(), node, graph, false});
    }
    for (const auto& tensor : attribute.tensors()) {
      found_.push_back({&tensor, node, graph, false});
    }
    if (attribute.has_sparse_tensor()) {
      visit_sparse(attribute.sparse_tensor(), node, graph);
    }
    for (const auto& sparse : attribute.sparse_tensors()) {
      visit_sparse(sparse, node, graph);
    }
    if (attribute.has_g()) {
      visit_graph(attribute.g());
    }
    for (const auto& subgraph : attribute.graphs()) {
      visit_graph(subgraph);
    }
  }

  void visit_sparse(const onnx::SparseTensorProto& sparse, std::string_view name,
                    std::uint32_t graph) {
    found_.push_back({&sparse.values(), name, graph, false});
    found_.push_back({&sparse.indices(), name, graph, false});
  }

  std::vector<ListedTensor> found_;
  std::uint32_t graphs_ = 0;
};

template <typename Stored, typename Values>
std::string packed(const Values& values) {
  std::string bytes(static_cast<std::size_t>(values.size()) * sizeof(Stored), '\0');
  std::size_t at = 0;
  for (const auto value : values) {
    const auto stored = static_cast<Stored>(value);
    std::memcpy(bytes.data() + at, &stored, sizeof(Stored));
    at += sizeof(Stored);
  }
  return bytes;
}

// onnx.proto, TensorProto: which typed field holds which element type; narrow ones lie in the low
// bits of int32_data, two values a byte for the 4-bit types.
std::string typed_bytes(const onnx::TensorProto& tensor, std::uint32_t bits) {
  switch (tensor.data_type()) {
    case onnx::TensorProto::FLOAT:
    case onnx::TensorProto::COMPLEX64:
      return packed<float>(tensor.float_data());
    case onnx::TensorProto::DOUBLE:
    case onnx::TensorProto::COMPLEX128:
      return packed<double>(tensor.double_data());
    case onnx::TensorProto::INT64:
      return packed<std::int64_t>(tensor.int64_data());
    case onnx::TensorProto::UINT64:
      return packed<std::uint64_t>(tensor.uint64_data());
    case onnx::TensorProto::UINT32:
      return packed<std::uint32_t>(tensor.uint64_data());
    default:
      break;
  }
  switch (bits) {
    case 32:
      return packed<std::int32_t>(tensor.int32_data());
    case 16:
      return packed<std::uint16_t>(tensor.int32_data());
    default:
      return packed<std::uint8_t>(tensor.int32_data());
  }
}

}  // namespace

namespace {

Status add_size_and_crc(ModelFile& model) {
  model.bytes = model.file->size();
  Crc32 crc;
  IoBuffer buffer;
  for (std::uint64_t first = 0; first < model.bytes; first += kStep) {
    const auto bytes = buffer.first(std::min(kStep, model.bytes - first));
    if (auto status = model.file->read(first, bytes); !status) {
      return status;
    }
    crc.update(bytes);
  }
  model.crc32 = crc.value();
  return {};
}

}  // namespace

Result<ModelFile> read_model_file(const std::filesystem::path& path) {
  for (int reads = 1;; ++reads) {
    auto file = SourceFile::open(path);
    auto proto = file ? load_model_proto(path) : fail(std::move(file).error());
    if (!proto) {
      return fail(std::move(proto).error());
    }
    ModelFile model{*std::move(file),   *std::move(proto),       0, 0,
                    path.parent_path(), path.filename().string()};
    // It was opened by its path twice: once more shows whether both were the same file.
    if (reads < kMaxModelReads && !is_current(path, model)) {
      continue;
    }
    Status status = add_size_and_crc(model);
    return status ? Result<ModelFile>(std::move(model)) : fail(std::move(status).error());
  }
}

bool is_current(const std::filesystem::path& path, const ModelFile& model) {
  const auto now = SourceFile::open(path);
  return now && model.file->same_file(**now);
}

std::vector<ListedTensor> list_tensors(const onnx::ModelProto& model) {
  return TensorLister().list(model);
}

bool has_inline_data(const onnx::TensorProto& tensor) {
  return tensor.has_raw_data() || tensor.float_data_size() > 0 || tensor.int32_data_size() > 0 ||
         tensor.string_data_size() > 0 || tensor.int64_data_size() > 0 ||
         tensor.double_data_size() > 0 || tensor.uint64_data_size() > 0;
}

Result<std::string> inline_bytes(const onnx::TensorProto& tensor) {
  const auto wanted =
      onnx_nbytes(tensor.data_type(), Shape(tensor.dims().begin(), tensor.dims().end()));
  if (!wanted) {
    return fail(wanted.error());
  }
  std::string bytes = tensor.has_raw_data() ? tensor.raw_data()
                                            : typed_bytes(tensor, onnx_bits(tensor.data_type()));
  if (bytes.size() != *wanted) {
    return fail(ErrorCode::kCorrupt, "it holds " + std::to_string(bytes.size()) +
                                         " bytes, its type and dims need " +
                                         std::to_string(*wanted));
  }
  return bytes;
}

}  // namespace onnx_external
