#include "save/make_plan.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/graph_facts.h"
#include "onnx/inline_data.h"
#include "onnx/model_access.h"
#include "save/file_names.h"
#include "save/layout.h"
#include "save/link.h"
#include "save/output_folder.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// `value`: the name by which nodes see the tensor.
bool stays_inline(const Model& model, const PlannedTensor& tensor, std::string_view value) {
  if (tensor.nbytes == 0) {
    return true;
  }
  const bool small = tensor.dims.size() <= 1 && tensor.nbytes <= kMaxInlineIntegerBytes;
  return small && (!onnx_is_floating(tensor.data_type) || must_stay_inline(model, value));
}

// Returns the name by which nodes read an external tensor. The tensor of a Constant node has
// ".value" at the end of its own name.
std::string_view value_of(const ExternalTensor& tensor) {
  constexpr std::string_view kOfConstant = ".value";
  std::string_view name = tensor.name;
  if (tensor.place == TensorPlace::kAttribute && name.ends_with(kOfConstant)) {
    name.remove_suffix(kOfConstant.size());
  }
  return name;
}

// Returns the type to which the values of a key are converted; nullopt if they are not converted.
std::optional<DType> cast_target(DType dtype, const Slot* slot, const PlanOptions& options) {
  if (!can_cast_from(dtype)) {
    return std::nullopt;
  }
  auto target = options.dtype;
  if (!target && slot != nullptr) {
    target = dtype_from_onnx(slot->elem_type);
  }
  return target && *target != dtype && can_cast_to(*target) ? target : std::nullopt;
}

// Builds a plan tensor by tensor. The ranges are laid out last, when all of them are known; only
// links have their positions immediately.
class Planner {
 public:
  Planner(const SourceModels& models, const Checkpoint& checkpoint, const PlanOptions& options,
          SavePlan& plan)
      : models_(models),
        checkpoint_(checkpoint),
        options_(options),
        plan_(plan),
        ids_(checkpoint.storages()) {
    if (options.layout == Layout::kLink) {
      linked_.emplace(models, checkpoint, plan);
    }
  }

  // Adds all tensors of one model.
  Status add_model(std::uint32_t model_index, const Mapping& mapping) {
    model_index_ = model_index;
    model_ = &models_.all()[model_index];
    replaced_.clear();
    for (const MappedPair& pair : mapping.pairs) {
      TRY(add_pair(pair));
    }
    for (std::size_t i = 0; i < model_->external_tensors().size(); ++i) {
      TRY(add_external(i));
    }
    const bool moves = options_.existing_data != ExistingData::kStay &&
                       options_.layout != Layout::kInline &&
                       options_.layout != Layout::kLink;  // data inside the model cannot be linked
    for (std::size_t i = 0; moves && i < model_->inline_tensors().size(); ++i) {
      TRY(add_inline(i));
    }
    return {};
  }

 private:
  Status add_pair(const MappedPair& pair) {
    TRY_ASSIGN(auto tensor, tensor_of(pair));
    if (pair.slot != kNoSlot &&
        (!model_->external_tensors().empty() || options_.existing_data != ExistingData::kStay)) {
      replaced_.emplace(model_->facts().slots[pair.slot].graph, tensor.name);
    }
    if (stays_inline(*model_, tensor, tensor.name) || tensor.nbytes < inline_below()) {
      plan_.tensors.push_back(std::move(tensor));
      return {};
    }
    const std::uint32_t range = range_with_bytes_of(tensor);
    return add_to_range(std::move(tensor), range);
  }

  // Plans an external tensor of the loaded model, unless a pair replaces it. If no runtime can read
  // the tensor from a file, although another tool has put it there, it becomes inline again.
  Status add_external(std::size_t index) {
    const ExternalTensor& external = model_->external_tensors()[index];
    if (external.place == TensorPlace::kInitializer &&
        replaced_.contains({external.graph, external.name})) {
      return {};
    }
    PlannedTensor tensor;
    tensor.model_index = model_index_;
    tensor.name = external.name;
    tensor.source = TensorSource::kModelExternal;
    tensor.source_index = index;
    tensor.data_type = external.data_type;
    tensor.dims = external.dims;
    tensor.nbytes = external.length;
    const bool in_memory = is_in_memory(*model_, external);
    if (in_memory) {
      tensor.source = TensorSource::kCheckpoint;
      TRY_ASSIGN_IN("initializer " + quote(external.name), tensor.source_index,
                    CheckpointAccess::given_tensor(checkpoint_, external.offset));
      tensor.existing_index = index;
    }
    const bool is_number =
        in_memory && !options_.inline_below && element_count(tensor.dims).value_or(0) == 1;
    if (is_number || stays_inline(*model_, tensor, value_of(external)) ||
        tensor.nbytes < inline_below()) {
      plan_.tensors.push_back(std::move(tensor));
      return {};
    }
    const std::uint32_t range =
        in_memory ? range_with_bytes_of(tensor) : range_with_bytes_of(external);
    return add_to_range(std::move(tensor), range);
  }

  // Plans an inline tensor of the loaded model that moves to a file. Tensors that stay inline need
  // no plan.
  Status add_inline(std::size_t index) {
    const InlineTensor& given = model_->inline_tensors()[index];
    if (given.in_training) {
      return {};
    }
    PlannedTensor tensor;
    tensor.model_index = model_index_;
    tensor.name = given.name;
    tensor.source = TensorSource::kModelInline;
    tensor.source_index = index;
    tensor.data_type = given.data_type;
    tensor.dims = given.dims;
    tensor.nbytes = given.length;
    const bool is_asked = given.place != TensorPlace::kAttribute ||
                          options_.existing_data == ExistingData::kMoveAndAttributes;
    const bool is_replaced =
        given.place == TensorPlace::kInitializer && replaced_.contains({given.graph, given.name});
    if (!is_asked || is_replaced || stays_inline(*model_, tensor, given.value)) {
      return {};
    }
    if (tensor.nbytes < options_.inline_below.value_or(kMinMovedBytes)) {
      return check_left_inline(tensor.name, index);
    }
    return add_to_range(std::move(tensor), next_range());
  }

  // Checks data that stays inline, whose type and dims must state the number of bytes. Data that is
  // copied is checked when it is copied.
  Status check_left_inline(const std::string& name, std::size_t index) const {
    TRY_IN("tensor " + quote(name), InlineReader::open(*model_, index));
    return {};
  }

  std::uint64_t inline_below() const { return options_.inline_below.value_or(0); }

  std::uint32_t next_range() const { return static_cast<std::uint32_t>(plan_.ranges.size()); }

  // A weight must have the type that the graph states for it, because the nodes compute in this
  // type.
  Status check_stated_type(const TensorView& view, const Slot* slot) const {
    const bool is_float = options_.dtype && can_cast_from(view.dtype);
    if (!is_float || slot == nullptr || slot->elem_type == 0 ||
        slot->elem_type == onnx_data_type(*options_.dtype)) {
      return {};
    }
    return fail(ErrorCode::kMismatch,
                fmt::format("slot {}: the graph states {}, so its weight cannot become {}; export "
                            "the graph in that type (with torch: export module.half(), with float "
                            "inputs of that type), or leave out dtype",
                            quote(slot->name), onnx_type_name(slot->elem_type),
                            torch_name(*options_.dtype)));
  }

  // Checks that a recipe with "cast" has types to convert from and to.
  Status check_cast(const MappedPair& pair, const TensorView& view, const Slot* slot) const {
    const bool states_type = options_.dtype || (slot != nullptr && slot->elem_type != 0);
    if (!ends_with_cast(pair.recipe) || (states_type && can_cast_from(view.dtype))) {
      return {};
    }
    return fail(ErrorCode::kMismatch,
                fmt::format("tensor {} of {}: its recipe says \"cast\", but {}", quote(view.name),
                            torch_name(view.dtype),
                            states_type ? "only floating-point values are converted"
                                        : "the graph does not state the type of its slot"));
  }

  Result<PlannedTensor> tensor_of(const MappedPair& pair) const {
    const TensorView& key = checkpoint_.tensors()[pair.key];
    const std::string where = "tensor " + quote(key.name);
    TRY_IN(where, apply_recipe(pair.recipe, key));
    TRY_ASSIGN_IN(where, const auto shape, apply_recipe(pair.recipe, key.shape));
    const bool kept = pair.slot == kNoSlot;
    const Slot* slot = kept ? nullptr : &model_->facts().slots[pair.slot];
    PlannedTensor tensor;
    tensor.model_index = model_index_;
    tensor.name = kept ? key.name : slot->name;
    tensor.slot = pair.slot;
    tensor.source_index = pair.key;
    tensor.key = key.name;
    tensor.rule = pair.rule;
    tensor.cast_to = cast_target(key.dtype, slot, options_);
    tensor.recipe = with_cast(pair.recipe, tensor.cast_to.has_value());
    TRY(check_stated_type(key, slot));
    TRY(check_cast(pair, key, slot));
    const DType dtype = tensor.cast_to.value_or(key.dtype);
    tensor.data_type = onnx_data_type(dtype);
    const auto nbytes = contiguous_nbytes(dtype, shape);
    auto dims = onnx_shape(key.dtype, shape);
    if (tensor.data_type == 0 || !dims) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("tensor {}: ONNX has no type for {} of shape {}", quote(key.name),
                              torch_name(key.dtype), shape_text(shape)));
    }
    if (!nbytes) {  // only the converted tensor is too large
      return fail_in(where, nbytes.error());
    }
    tensor.nbytes = *nbytes;
    tensor.dims = *std::move(dims);
    return tensor;
  }

  bool shares_bytes() const {
    return options_.dedup != Dedup::kOff && options_.layout != Layout::kInline;
  }

  // Returns the range with the same bytes, or the number of the next range.
  std::uint32_t range_with_bytes_of(const PlannedTensor& tensor) {
    if (!shares_bytes()) {
      return next_range();
    }
    const auto id = ids_.id_of(*planned_view(checkpoint_, tensor), tensor.cast_to);
    if (id == range_of_id_.size()) {
      range_of_id_.push_back(next_range());
    }
    return id ? range_of_id_[*id] : next_range();
  }
  std::uint32_t range_with_bytes_of(const ExternalTensor& given) {
    const std::tuple place(std::string_view(model_->source_dir().native()),
                           std::string_view(given.location), given.offset, given.length);
    return shares_bytes() ? range_of_location_.emplace(place, next_range()).first->second
                          : next_range();
  }

  Status add_to_range(PlannedTensor tensor, std::uint32_t range) {
    tensor.range = range;
    DataRange next{.bytes = tensor.nbytes, .source_tensor = plan_.tensors.size()};
    // Also one that shares its range: its type may differ. Parts of matrices get their places
    // later.
    if (options_.layout == Layout::kLink && !options_.quantize) {
      TRY(linked_->place(tensor, next));
    }
    if (range == next_range()) {
      plan_.ranges.push_back(next);
    }
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  SourceModels models_;
  const Checkpoint& checkpoint_;
  const PlanOptions& options_;
  SavePlan& plan_;
  std::optional<LinkedRanges> linked_;  // with Layout::kLink
  BytesIds ids_;
  std::vector<std::uint32_t> range_of_id_;
  // The ranges to which the given models refer, by folder, location, offset and length.
  std::map<std::tuple<std::string_view, std::string_view, std::uint64_t, std::uint64_t>,
           std::uint32_t>
      range_of_location_;
  // The model whose tensors are being added.
  const Model* model_ = nullptr;
  std::uint32_t model_index_ = 0;
  std::set<std::pair<std::uint32_t, std::string>> replaced_;  // (graph, name)
};

// An early check of the model's size; the exact size is known when the model is serialized.
Status check_model_size(const Model& model, const SavePlan& plan) {
  constexpr std::uint64_t kMaxModelBytes = 0x7FFFFFFF;
  if (plan.layout != Layout::kInline ||
      (plan.bytes <= kMaxModelBytes &&
       plan.bytes + model.proto().ByteSizeLong() <= kMaxModelBytes)) {
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} of tensors do not fit into the model: protobuf cannot read more "
                          "than {}; choose another layout",
                          size_text(plan.bytes), size_text(kMaxModelBytes)));
}

// The data files of several models are named after their data folder.
std::string data_name_for(std::span<const Model> models, const std::string& data_dir,
                          const PlanOptions& options) {
  const Layout layout = options.written_layout();
  const bool is_beside = layout == Layout::kSingle || layout == Layout::kShards;
  return is_beside && models.size() > 1 ? set_data_name(data_dir, options.data_name)
                                        : options.data_name;
}

}  // namespace

Result<SavePlan> make_plan(std::span<const Model> models, std::span<const std::string> names,
                           const Checkpoint& checkpoint, std::span<const Mapping> mappings,
                           const PlanOptions& options, const std::string& data_dir) {
  if (options.inline_below.value_or(0) > kMaxInlineBelow) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensors of up to {} cannot be inline; the limit is {}",
                            size_text(*options.inline_below), size_text(kMaxInlineBelow)));
  }
  SavePlan plan;
  plan.data_dir = data_dir;
  plan.data_name = data_name_for(models, data_dir, options);
  const SourceModels sources(models);
  Planner planner(sources, checkpoint, options, plan);
  for (std::uint32_t i = 0; i < models.size(); ++i) {
    plan.models.push_back({names[i], mappings[i].options});
    plan.tensors.reserve(plan.tensors.size() + mappings[i].pairs.size());
    if (Status added = planner.add_model(i, mappings[i]); !added) {
      return models.size() == 1 ? fail(added.error()) : fail_in(names[i], added.error());
    }
  }
  TRY(lay_out(plan, options));
  if (!options.quantize) {  // then it becomes much smaller
    TRY(check_model_size(models.front(), plan));
  }
  return plan;
}

}  // namespace onnx_external
