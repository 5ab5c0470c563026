#include "save/plan_checks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/holes.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/expansion_limit.h"
#include "mapping/advice.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"
#include "onnx/open_values.h"
#include "onnx/shape_conflict.h"
#include "onnx_external/checkpoint.h"
#include "tensor/missing_data.h"

namespace onnx_external {
namespace {

// Names and tensors without a value, by kind.
struct LeftOpen {
  std::vector<ErrorItem> slots;   // names that nothing defines, initializers without data
  std::vector<ErrorItem> inputs;  // of the graph, which the mapping takes for weights
  std::vector<ErrorItem> others;  // OpenValue
};

LeftOpen left_open(const Model& model, const Mapping& mapping) {
  const std::vector<Slot>& slots = model.facts().slots;
  std::vector<bool> filled(slots.size());
  for (const MappedPair& pair : mapping.pairs) {
    if (pair.slot < filled.size()) {
      filled[pair.slot] = true;
    }
  }
  LeftOpen found;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    const bool is_missing = i < mapping.slots.size() && mapping.slots[i] == SlotVerdict::kMissing;
    if (filled[i] || !(is_open(slot) || is_missing)) {
      continue;
    }
    const bool is_input = slot.kind == SlotKind::kGraphInput;
    (is_input ? found.inputs : found.slots).push_back(item_of(slot, use_text(slot)));
  }
  for (const OpenValue& place : ModelAccess::open_values(model)) {
    found.others.push_back({place.name, place.form, place.why, {}});
  }
  return found;
}

const ExternalTensor& existing_of(const PlannedTensor& tensor, const SourceModels& models) {
  return models.of(tensor).external_tensors()[tensor.source_index];
}

bool is_known(const Slot& slot) {
  return slot.elem_type != 0 && slot.shape &&
         std::all_of(slot.shape->begin(), slot.shape->end(),
                     [](const auto& dim) { return dim.has_value(); });
}

std::string form_of(const ConflictingInput& input) {
  Slot slot;
  slot.elem_type = input.elem_type;
  slot.shape = input.shape;
  return form_of(slot);
}

std::string text_of(const onnx::NodeProto& node) {
  if (!node.name().empty() || node.output_size() == 0) {
    return node.op_type() + " " + quote(node.name());
  }
  return "the " + node.op_type() + " that makes " + quote(node.output(0));
}

// `keys` are the keys of the weights that a checkpoint fills.
Error error_of(const ShapeConflict& conflict, const NameMap<std::string_view>& keys,
               std::string_view way_out) {
  std::string text;
  ErrorDetails details;
  details.lists.push_back({ErrorKind::kContradiction, text_of(*conflict.node), {}});
  for (const ConflictingInput& input : conflict.inputs) {
    const bool is_itself = input.weight.empty() || input.weight == input.name;
    const auto key = keys.find(input.weight);
    const std::string of_key = key == keys.end() ? "" : "of key " + quote(key->second);
    const std::string from =
        is_itself ? of_key
                  : "from weight " + quote(input.weight) + (of_key.empty() ? "" : " " + of_key);
    text += (text.empty() ? "" : ", ") + quote(input.name) + " " + form_of(input) +
            (from.empty() ? "" : " " + from);
    details.lists.front().items.push_back({std::string(input.name), form_of(input), from, {}});
  }
  if (!keys.empty()) {
    details.remedies.push_back({RemedyOption::kMap, "FILE", "to say which key fills which slot"});
  }
  return {ErrorCode::kMismatch,
          "weights contradict each other: " + text_of(*conflict.node) +
              " cannot have inputs of these shapes and types: " + text + "; " +
              std::string(way_out),
          std::make_shared<const ErrorDetails>(std::move(details))};
}

std::string wrong_with_link(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (write.checksum != Checksum::kNone) {
    return "a checksum requires reading whole files, which the layout 'link' avoids; leave out the "
           "checksum";
  }
  if (plan.dedup == Dedup::kContent) {
    return "the layout 'link' copies nothing, so finding equal bytes saves nothing; leave out the "
           "search for equal bytes";
  }
  if (plan.quantize) {  // other data is written to a file
    return plan.quantize->keep == KeepCodes::kNo
               ? "weights that are quantized during the save are not in any file yet, so they "
                 "cannot be linked; choose 'keep' to keep the codes of the checkpoint, or choose "
                 "another layout"
               : "";
  }
  if (plan.dtype || casts == Casts::kAllow) {
    return "the layout 'link' copies no bytes, so it cannot convert values; choose another layout";
  }
  return "";
}

std::string wrong_options(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (plan.max_shard_bytes && plan.layout != Layout::kShards) {
    return "a shard size applies only to the layout 'shards'";
  }
  if (plan.alignment && plan.layout != Layout::kSingle && plan.layout != Layout::kShards) {
    return "an alignment applies only to the layouts 'single' and 'shards'";
  }
  if (plan.layout == Layout::kInline && write.checksum != Checksum::kNone) {
    return "a checksum applies to data files, but the layout 'inline' has none";
  }
  if (plan.dtype && !can_cast_to(*plan.dtype)) {
    return "values can be converted only to float64, float32, float16 and bfloat16, not to " +
           std::string(torch_name(*plan.dtype));
  }
  if (plan.dtype && casts == Casts::kAllow) {
    return "a dtype already converts all floats; leave out the cast";
  }
  return plan.layout == Layout::kLink ? wrong_with_link(plan, write, casts) : "";
}

}  // namespace

std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping) {
  const LeftOpen found = left_open(model, mapping);
  std::vector<std::string> names;
  for (const auto* items : {&found.slots, &found.inputs, &found.others}) {
    for (const ErrorItem& item : *items) {
      names.push_back(item.name);
    }
  }
  return names;
}

Status check_complete(const Model& model, const Mapping& mapping, std::string_view source) {
  if (mapping.options.partial == Partial::kAllow) {
    return {};
  }
  LeftOpen found = left_open(model, mapping);
  Refusal refusal;
  if (!found.slots.empty()) {
    refusal.add_sentence("no runtime can load a model with missing weights: " +
                         std::string(source.empty() ? "pass the checkpoint that contains their "
                                                      "data, or a graph that contains its weights"
                                                    : source));
  }
  if (!found.inputs.empty()) {
    std::string names;
    for (const ErrorItem& item : found.inputs) {
      names += (names.empty() ? "" : ",") + item.name;
    }
    names = found.inputs.size() > kMaxListed ? "NAMES" : names;
    refusal.add_sentence(
        "the exporter turned weights into inputs (export_params=False); pass the checkpoint that "
        "contains them");
    refusal.add_remedy(
        {RemedyOption::kInputs, std::move(names), "if the caller supplies them at run time"});
  }
  if (!found.others.empty()) {
    refusal.add_sentence(
        "a checkpoint cannot fill attributes, sparse initializers or names in functions; export "
        "the graph again with its data");
  }
  refusal.add_list(ErrorKind::kWithoutData, std::move(found.slots));
  refusal.add_list(ErrorKind::kInputsLikeWeights, std::move(found.inputs));
  refusal.add_list(ErrorKind::kInnerWithoutData, std::move(found.others));
  if (refusal.empty()) {
    return {};
  }
  refusal.add_remedy(
      {RemedyOption::kPartial, "", "to save the model anyway, as an incomplete model"});
  return fail(std::move(refusal).error(ErrorCode::kNotFound));
}

Status check_expansion(const SavePlan& plan, const SourceModels& models, std::uint64_t max_expand) {
  std::uint64_t copied = 0;
  std::map<std::pair<std::uint32_t, std::string_view>, const PlannedTensor*> tensors;
  for (const DataRange& range : plan.ranges) {
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source == TensorSource::kModelExternal) {
      tensors.emplace(
          std::pair(tensor.model_index, std::string_view(existing_of(tensor, models).location)),
          &tensor);
      copied = checked_add(copied, range.bytes).value_or(UINT64_MAX);
    }
  }
  if (copied <= kAlwaysExpandedBytes) {
    return {};
  }
  std::uint64_t stored = 0;
  std::set<std::string> counted;  // several models may have their data in one file
  for (const auto& [place, tensor] : tensors) {
    TRY_ASSIGN(const auto file, open_external(models.of(*tensor), existing_of(*tensor, models)));
    TRY_ASSIGN(auto stamp, file->stamp());
    stored += counted.insert(std::move(stamp)).second ? stored_bytes(*file) : 0;
  }
  return check_expanded("the tensors that are in the model already", copied, stored, max_expand);
}

Status check_shapes(const Model& model, std::uint32_t model_index,
                    std::span<const PlannedTensor> tensors) {
  const std::vector<Slot>& slots = model.facts().slots;
  std::vector<SuppliedValue> supplied;
  NameMap<std::string_view> keys;
  bool all_known = true;
  for (const PlannedTensor& tensor : tensors) {
    if (tensor.model_index == model_index && tensor.slot < slots.size() &&
        slots[tensor.slot].graph == 0) {
      const Slot& slot = slots[tensor.slot];
      all_known = all_known && is_known(slot);
      supplied.push_back({slot.name, tensor.data_type, tensor.dims});
      keys.emplace(slot.name, tensor.key);
    }
  }
  if (all_known) {
    return {};
  }
  const auto conflict = find_shape_conflict(model.proto().graph(), supplied);
  return conflict ? Status(fail(
                        error_of(*conflict, keys, "use the checkpoint that belongs to this graph")))
                  : Status();
}

Status check_shapes(const Model& model) {
  const auto conflict = find_shape_conflict(model.proto().graph(), {});
  return conflict
             ? Status(fail(error_of(*conflict, {}, "add() the weights that belong to this graph")))
             : Status();
}

Status check_option_rules(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (plan.quantize) {
    if (Status checked = check_options(*plan.quantize); !checked) {
      return checked;
    }
  }
  std::string wrong = wrong_options(plan, write, casts);
  return wrong.empty() ? Status() : fail(ErrorCode::kInvalidArgument, std::move(wrong));
}

Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                  const SourceModels& models) {
  struct Used {
    const PlannedTensor* tensor = nullptr;
    std::vector<StoredRange> ranges;
  };
  std::map<std::pair<std::uint32_t, std::string_view>, Used> files;
  for (const DataRange& range : plan.ranges) {
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source != TensorSource::kModelExternal) {
      continue;
    }
    const ExternalTensor& external = models.of(tensor).external_tensors()[tensor.source_index];
    Used& used = files[{tensor.model_index, external.location}];
    used.tensor = &tensor;
    used.ranges.push_back({external.name, external.dims, external.offset, external.length});
  }
  std::vector<std::string> notes;
  for (auto& [place, used] : files) {
    const Model& model = models.of(*used.tensor);
    const ExternalTensor& external = model.external_tensors()[used.tensor->source_index];
    TRY_ASSIGN(const auto file, open_external(model, external));
    TRY_ASSIGN(auto note, check_is_not_missing(*file, std::move(used.ranges)));
    if (!note.empty()) {
      notes.push_back(std::move(note));
    }
  }
  return notes;
}

}  // namespace onnx_external
