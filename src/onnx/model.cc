#include "onnx_external/model.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "onnx/external_data.h"
#include "onnx/graph_list.h"
#include "onnx/load.h"
#include "onnx/slots.h"

namespace onnx_external {
namespace {

Status check_initializers(const onnx::GraphProto& graph) {
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const Shape dims(tensor.dims().begin(), tensor.dims().end());
    if (auto count = element_count(dims); !count) {
      return fail_in("initializer " + quote(tensor.name()), std::move(count).error());
    }
  }
  return {};
}

bool is_external(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

// Attribute and sparse tensors in external files would dangle in another folder.
Status check_other_tensors(const onnx::GraphProto& graph) {
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const auto& list = attribute.tensors();
      const bool sparse_external =
          attribute.has_sparse_tensor() && is_external(attribute.sparse_tensor().values());
      if ((attribute.has_t() && is_external(attribute.t())) || sparse_external ||
          std::any_of(list.begin(), list.end(), is_external)) {
        return fail(ErrorCode::kUnsupported,
                    "node " + quote(node.name()) + ": attribute " + quote(attribute.name()) +
                        " keeps a tensor in an external file; save the graph with attribute "
                        "tensors inline");
      }
    }
  }
  for (const auto& sparse : graph.sparse_initializer()) {
    if (is_external(sparse.values()) || is_external(sparse.indices())) {
      return fail(ErrorCode::kUnsupported, "sparse initializer " + quote(sparse.values().name()) +
                                               " is in an external file; save it inline");
    }
  }
  return {};
}

}  // namespace

Result<Model> Model::load(const std::filesystem::path& path) {
  Result<onnx::ModelProto> proto = load_model_proto(path);
  if (!proto) {
    return fail(std::move(proto).error());
  }
  Result<Model> model = from_proto(std::move(*proto), path.parent_path());
  if (!model) {
    return fail_in(quote(path.string()), std::move(model).error());
  }
  return model;
}

Result<Model> Model::from_proto(onnx::ModelProto proto, std::filesystem::path source_dir) {
  if (!proto.has_graph()) {
    return fail(ErrorCode::kCorrupt, "the model has no graph");
  }
  Model model;
  model.proto_ = std::move(proto);
  model.source_dir_ = std::move(source_dir);
  if (Status status = model.analyze(); !status) {
    return fail(std::move(status).error());
  }
  return model;
}

Status Model::analyze() {
  Result<std::vector<GraphNode>> graphs = list_graphs(*proto_.mutable_graph());
  if (!graphs) {
    return fail(std::move(graphs).error());
  }
  external_.clear();
  external_protos_.clear();
  for (std::uint32_t g = 0; g < graphs->size(); ++g) {
    onnx::GraphProto& graph = *(*graphs)[g].graph;
    if (Status status = check_initializers(graph); !status) {
      return status;
    }
    if (Status status = check_other_tensors(graph); !status) {
      return status;
    }
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
      if (!is_external(tensor)) {
        continue;
      }
      Result<ExternalTensor> external = read_external_entries(tensor, g);
      if (!external) {
        return fail(std::move(external).error());
      }
      external_.push_back(*std::move(external));
      external_protos_.push_back(&tensor);
    }
  }
  facts_ = collect_facts(*graphs, proto_.ir_version());
  return {};
}

void Model::relocate(std::size_t external_tensor, const ExternalRef& ref) {
  assert(external_tensor < external_.size());
  write_external_entries(ref, *external_protos_[external_tensor]);
  ExternalTensor& external = external_[external_tensor];
  external.location = ref.location;
  external.offset = ref.offset;
  external.length = ref.length;
}

Result<std::string> Model::serialize() const {
  constexpr std::size_t kMaxBytes = std::numeric_limits<std::int32_t>::max();
  const std::size_t size = proto_.ByteSizeLong();
  if (size > kMaxBytes) {
    return fail(ErrorCode::kUnsupported, "the model takes " + std::to_string(size) +
                                             " bytes, but protobuf cannot write more than " +
                                             std::to_string(kMaxBytes));
  }
  std::string text;
  text.reserve(size);
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    proto_.SerializeWithCachedSizes(&coded);
  }
  return text;
}

bool must_stay_inline(const Model& model, std::string_view initializer_name) {
  const std::vector<std::string>& names = model.facts().inline_names;
  return std::binary_search(names.begin(), names.end(), initializer_name);
}

}  // namespace onnx_external
