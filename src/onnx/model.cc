#include "onnx_external/model.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "onnx/duplicate_names.h"
#include "onnx/external_data.h"
#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/inline_data.h"
#include "onnx/load.h"
#include "onnx/model_access.h"
#include "onnx/model_segments.h"
#include "onnx/open_values.h"
#include "onnx/side_files.h"
#include "onnx/slots.h"
#include "onnx/tensor_list.h"

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

// Returns nullopt for a tensor without data in the model.
std::optional<InlineTensor> inline_tensor(const ListedTensor& tensor) {
  const onnx::TensorProto& proto = *tensor.proto;
  Shape dims = dims_of(proto);
  const auto length = onnx_nbytes(proto.data_type(), dims);
  if (!has_inline_data(proto) || !length || *length == 0) {
    return std::nullopt;
  }
  return InlineTensor{tensor.name,       tensor.place,    tensor.graph, tensor.value,
                      proto.data_type(), std::move(dims), *length,      tensor.in_training};
}

}  // namespace

// The lists point to messages in `proto` and in `detached`, which do not move.
struct Model::Parts {
  std::shared_ptr<const onnx::ModelProto> proto;
  std::shared_ptr<const CutTensors> cuts;
  GraphFacts facts;
  std::vector<ExternalTensor> external;
  std::vector<const onnx::TensorProto*> external_protos;  // same index as `external`
  std::vector<InlineTensor> inside;
  std::vector<const onnx::TensorProto*> inside_protos;
  std::vector<std::shared_ptr<const DetachedAttribute>> detached;
  std::vector<OpenValue> open;

  static Result<std::shared_ptr<const Parts>> of(std::shared_ptr<const onnx::ModelProto> proto,
                                                 std::shared_ptr<const CutTensors> cuts) {
    if (!proto->has_graph()) {
      return fail(ErrorCode::kCorrupt, "the model has no graph");
    }
    const auto parts = std::make_shared<Parts>();
    parts->proto = std::move(proto);
    parts->cuts = std::move(cuts);
    TRY_ASSIGN(const auto graphs, list_graphs(parts->proto->graph()));
    TRY_ASSIGN(const auto tensors, list_tensors(*parts->proto));
    for (const ListedTensor& tensor : tensors) {
      TRY(parts->add(tensor));
    }
    parts->open = open_values(*parts->proto, tensors, graphs.size());
    bool has_duplicates = false;
    parts->facts = collect_facts(graphs, parts->proto->ir_version(), &has_duplicates);
    if (has_duplicates) {
      const DuplicateName duplicate = find_duplicate_names(graphs).front();
      return fail(ErrorCode::kCorrupt,
                  "initializer " + quote(duplicate.name) + ": " + duplicate.message);
    }
    parts->facts.side_files = list_side_files(*parts->proto);
    return parts;
  }

  Status add(const ListedTensor& tensor) {
    TRY_IN(text_of(tensor), element_count(dims_of(*tensor.proto)));
    if (tensor.detached && (detached.empty() || detached.back() != tensor.detached)) {
      detached.push_back(tensor.detached);
    }
    if (is_external(*tensor.proto)) {
      TRY_ASSIGN_IN(text_of(tensor), auto found, read_external_tensor(*tensor.proto));
      found.name = tensor.name;
      found.place = tensor.place;
      found.graph = tensor.graph;
      external.push_back(std::move(found));
      external_protos.push_back(tensor.proto);
    } else if (auto found = inline_tensor(tensor)) {
      inside.push_back(*std::move(found));
      inside_protos.push_back(tensor.proto);
    }
    return {};
  }
};

Result<Model> Model::load(const std::filesystem::path& path) {
  TRY_ASSIGN(auto loaded, load_model_file(path));
  TRY_ASSIGN_IN(path.string(), auto parts,
                Parts::of(std::move(loaded.proto), std::move(loaded.cuts)));
  Model model(std::move(parts), path.parent_path());
  model.path_ = path;
  return model;
}

Result<Model> Model::from_proto(onnx::ModelProto proto, std::filesystem::path source_dir) {
  TRY_ASSIGN(auto parts, Parts::of(std::make_shared<const onnx::ModelProto>(std::move(proto)),
                                   std::make_shared<const CutTensors>()));
  return Model(std::move(parts), std::move(source_dir));
}

const onnx::ModelProto& Model::proto() const {
  return *parts_->proto;
}

const GraphFacts& Model::facts() const {
  return parts_->facts;
}

const std::string& Model::slot_name(std::uint32_t slot) const {
  return facts().slots[slot].name;
}

const std::vector<ExternalTensor>& Model::external_tensors() const {
  return parts_->external;
}

const std::vector<InlineTensor>& Model::inline_tensors() const {
  return parts_->inside;
}

Result<std::string> Model::serialize() const {
  TRY_ASSIGN(auto segments, model_segments(*this));
  return join_segments(std::move(segments), *parts_->cuts);
}

const onnx::TensorProto& ModelAccess::external_proto(const Model& model, std::size_t i) {
  return *model.parts_->external_protos[i];
}

const onnx::TensorProto& ModelAccess::inline_proto(const Model& model, std::size_t i) {
  return *model.parts_->inside_protos[i];
}

const CutTensors& ModelAccess::cuts(const Model& model) {
  return *model.parts_->cuts;
}

std::span<const std::shared_ptr<const DetachedAttribute>> ModelAccess::detached_attributes(
    const Model& model) {
  return model.parts_->detached;
}

std::span<const OpenValue> ModelAccess::open_values(const Model& model) {
  return model.parts_->open;
}

bool must_stay_inline(const Model& model, std::string_view initializer_name) {
  const std::vector<std::string>& names = model.facts().inline_names;
  return std::binary_search(names.begin(), names.end(), initializer_name);
}

}  // namespace onnx_external
