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

bool is_external_sparse(const onnx::SparseTensorProto& sparse) {
  return is_external(sparse.values()) || is_external(sparse.indices());
}

bool keeps_external(const onnx::AttributeProto& attribute) {
  const auto& tensors = attribute.tensors();
  const auto& sparse = attribute.sparse_tensors();
  return (attribute.has_t() && is_external(attribute.t())) ||
         (attribute.has_sparse_tensor() && is_external_sparse(attribute.sparse_tensor())) ||
         std::any_of(tensors.begin(), tensors.end(), is_external) ||
         std::any_of(sparse.begin(), sparse.end(), is_external_sparse);
}

template <typename Nodes>
Status check_attributes(const Nodes& nodes) {
  for (const onnx::NodeProto& node : nodes) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (keeps_external(attribute)) {
        return fail(ErrorCode::kUnsupported,
                    "node " + quote(node.name()) + ": attribute " + quote(attribute.name()) +
                        " keeps a tensor in an external file; save the graph with attribute "
                        "tensors inline");
      }
    }
  }
  return {};
}

// Attribute and sparse tensors in external files would dangle in another folder.
Status check_other_tensors(const onnx::GraphProto& graph) {
  for (const auto& sparse : graph.sparse_initializer()) {
    if (is_external_sparse(sparse)) {
      return fail(ErrorCode::kUnsupported, "sparse initializer " + quote(sparse.values().name()) +
                                               " is in an external file; save it inline");
    }
  }
  return check_attributes(graph.node());
}

// A graph outside the main one, whose tensors are not moved: nothing of it may be external.
Status check_aside(onnx::GraphProto& aside) {
  auto graphs = list_graphs(aside);
  if (!graphs) {
    return fail(std::move(graphs).error());
  }
  for (const GraphNode& each : *graphs) {
    for (const onnx::TensorProto& tensor : each.graph->initializer()) {
      if (is_external(tensor)) {
        return fail(ErrorCode::kUnsupported, "initializer " + quote(tensor.name()) +
                                                 " is in an external file; save it inline");
      }
    }
    if (Status status = check_other_tensors(*each.graph); !status) {
      return status;
    }
  }
  return {};
}

Status check_function(onnx::FunctionProto& function) {
  for (onnx::NodeProto& node : *function.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) {
        if (Status status = check_aside(*attribute.mutable_g()); !status) {
          return status;
        }
      }
      for (onnx::GraphProto& graph : *attribute.mutable_graphs()) {
        if (Status status = check_aside(graph); !status) {
          return status;
        }
      }
    }
  }
  return check_attributes(function.node());
}

Status check_functions_and_training(onnx::ModelProto& model) {
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    if (Status status = check_function(function); !status) {
      return fail_in("function " + quote(function.name()), std::move(status).error());
    }
  }
  for (onnx::TrainingInfoProto& training : *model.mutable_training_info()) {
    Status status;  // mutable_...() would add an absent graph
    if (training.has_initialization()) {
      status = check_aside(*training.mutable_initialization());
    }
    if (status && training.has_algorithm()) {
      status = check_aside(*training.mutable_algorithm());
    }
    if (!status) {
      return fail_in("training_info", std::move(status).error());
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
    return fail_in(path.string(), std::move(model).error());
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
  if (Status status = check_functions_and_training(proto_); !status) {
    return status;
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
