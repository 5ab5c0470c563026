#include "onnx_external/model.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "onnx/cut_tensors.h"
#include "onnx/external_data.h"
#include "onnx/function_attributes.h"
#include "onnx/graph_list.h"
#include "onnx/inline_data.h"
#include "onnx/load.h"
#include "onnx/slots.h"
#include "onnx/tensor_list.h"
#include "onnx/wire_scan.h"

namespace onnx_external {
namespace {

// "initializer 'w'", for messages.
std::string text_of(const ListedTensor& tensor) {
  switch (tensor.place) {
    case TensorPlace::kInitializer:
      return "initializer " + quote(tensor.name);
    case TensorPlace::kSparse:
      return "sparse initializer " + quote(tensor.name);
    case TensorPlace::kAttribute:
      break;
  }
  return "attribute " + quote(tensor.name);
}

Shape dims_of(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

// Nothing for a tensor that has no numbers of its own.
std::optional<InlineTensor> inline_tensor(const ListedTensor& tensor) {
  const onnx::TensorProto& proto = *tensor.proto;
  Shape dims = dims_of(proto);
  const auto length = onnx_nbytes(proto.data_type(), dims);
  if (!has_inline_data(proto) || !length || *length == 0) {
    return std::nullopt;
  }
  return InlineTensor{tensor.name,       tensor.place,    tensor.graph, tensor.value,
                      proto.data_type(), std::move(dims), *length};
}

}  // namespace

Result<Model> Model::load(const std::filesystem::path& path) {
  TRY_ASSIGN(auto loaded, load_model_file(path));
  Result<Model> model = make(std::move(loaded.proto), std::move(loaded.cuts), path.parent_path());
  if (!model) {
    return fail_in(path.string(), std::move(model).error());
  }
  model->path_ = path;
  return model;
}

Result<Model> Model::from_proto(onnx::ModelProto proto, std::filesystem::path source_dir) {
  return make(std::make_shared<onnx::ModelProto>(std::move(proto)),
              std::make_shared<const CutTensors>(), std::move(source_dir));
}

Result<Model> Model::make(std::shared_ptr<onnx::ModelProto> proto,
                          std::shared_ptr<const CutTensors> cuts,
                          std::filesystem::path source_dir) {
  if (!proto->has_graph()) {
    return fail(ErrorCode::kCorrupt, "the model has no graph");
  }
  Model model;
  model.proto_ = std::move(proto);
  model.cuts_ = std::move(cuts);
  model.source_dir_ = std::move(source_dir);
  TRY(model.analyze());
  return model;
}

Status Model::analyze() {
  external_.clear();
  external_protos_.clear();
  inline_.clear();
  inline_protos_.clear();
  loose_.clear();
  TRY_ASSIGN(auto graphs, list_graphs(*proto_->mutable_graph()));
  TRY_ASSIGN(const auto tensors, list_tensors(*proto_));
  for (const ListedTensor& tensor : tensors) {
    if (auto count = element_count(dims_of(*tensor.proto)); !count) {
      return fail_in(text_of(tensor), std::move(count).error());
    }
    // The list gives read-only pointers into the model, which is ours.
    auto* proto = const_cast<onnx::TensorProto*>(tensor.proto);
    if (tensor.loose) {
      loose_.emplace(proto, tensor.loose);
    }
    if (is_external(*proto)) {
      Result<ExternalTensor> external = read_external_entries(*proto);
      if (!external) {
        return fail_in(text_of(tensor), std::move(external).error());
      }
      external->name = tensor.name;
      external->place = tensor.place;
      external->graph = tensor.graph;
      external_.push_back(*std::move(external));
      external_protos_.push_back(proto);
    } else if (auto found = inline_tensor(tensor)) {
      inline_.push_back(*std::move(found));
      inline_protos_.push_back(proto);
    }
  }
  facts_ = collect_facts(graphs, proto_->ir_version());
  return {};
}

void Model::relocate(std::size_t external_tensor, const TensorData& data) {
  assert(external_tensor < external_.size());
  write_tensor_data(data, cuts_->placeholders(), *external_protos_[external_tensor]);
  note_change(external_protos_[external_tensor]);
}

void Model::externalize(std::size_t inline_tensor, const ExternalRef& ref) {
  assert(inline_tensor < inline_.size());
  write_external_entries(ref, *inline_protos_[inline_tensor]);
  note_change(inline_protos_[inline_tensor]);
}

void Model::note_change(const onnx::TensorProto* tensor) {
  if (const auto found = loose_.find(tensor); found != loose_.end()) {
    write_back(*found->second, *proto_);
  }
}

Result<std::string> Model::serialize() const {
  TRY_ASSIGN(auto pieces, model_pieces(*this));
  return join_pieces(std::move(pieces), *cuts_);
}

bool must_stay_inline(const Model& model, std::string_view initializer_name) {
  const std::vector<std::string>& names = model.facts().inline_names;
  return std::binary_search(names.begin(), names.end(), initializer_name);
}

}  // namespace onnx_external
