#include "onnx/model_edits.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/model_access.h"

namespace onnx_external {
namespace {

// Before this version, every initializer also had to be a graph input.
constexpr std::int64_t kFirstIrWithoutInputs = 4;

struct Placed {
  const Attachment* attachment = nullptr;
  const Slot* slot = nullptr;  // nothing for new initializers

  [[nodiscard]] const std::string& name() const {
    return slot == nullptr ? attachment->name : slot->name;
  }
  [[nodiscard]] bool is(SlotKind kind) const { return slot != nullptr && slot->kind == kind; }
};

// Returns the names that the graph already defines, by slots or in other ways.
NameSet defined_names(const GraphFacts& facts) {
  NameSet names(facts.defined_names.begin(), facts.defined_names.end());
  for (const Slot& slot : facts.slots) {
    if (slot.kind != SlotKind::kUndefinedName) {
      names.insert(slot.name);
    }
  }
  return names;
}

Status check_attachments(const GraphFacts& facts, std::span<const Attachment> attachments) {
  const bool adds =
      std::any_of(attachments.begin(), attachments.end(),
                  [](const Attachment& attachment) { return attachment.slot == kNoSlot; });
  NameSet names = adds ? defined_names(facts) : NameSet();
  std::vector<bool> filled(facts.slots.size());
  for (const Attachment& attachment : attachments) {
    if (attachment.slot != kNoSlot) {
      if (attachment.slot >= facts.slots.size() || filled[attachment.slot]) {
        return fail(ErrorCode::kInvalidArgument, "slot " + std::to_string(attachment.slot) +
                                                     " does not exist or is filled twice");
      }
      filled[attachment.slot] = true;
      if (adds && facts.slots[attachment.slot].kind == SlotKind::kUndefinedName) {
        names.insert(facts.slots[attachment.slot].name);
      }
      continue;
    }
    if (attachment.name.empty() || !names.insert(attachment.name).second) {
      return fail(ErrorCode::kInvalidArgument, "new initializer " + quote(attachment.name) +
                                                   ": the graph defines that name already");
    }
  }
  return {};
}

// The attachments of each graph in the order of their slots; those without a slot come last in the
// main graph.
std::vector<std::vector<Placed>> by_graph(const GraphFacts& facts,
                                          std::span<const Attachment> attachments,
                                          std::size_t graphs) {
  std::vector<const Attachment*> order;
  order.reserve(attachments.size());
  for (const Attachment& attachment : attachments) {
    order.push_back(&attachment);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Attachment* a, const Attachment* b) { return a->slot < b->slot; });
  std::vector<std::vector<Placed>> placed(graphs);
  for (const Attachment* attachment : order) {
    if (attachment->slot == kNoSlot) {
      placed[0].push_back({attachment, nullptr});
    } else {
      const Slot& slot = facts.slots[attachment->slot];
      placed[slot.graph].push_back({attachment, &slot});
    }
  }
  return placed;
}

void append(const Placed& placed, BareTensor& bare, ModelText& out) {
  const Attachment& attachment = *placed.attachment;
  bare.head.set_name(placed.name());
  bare.head.set_data_type(attachment.data_type);
  bare.head.mutable_dims()->Assign(attachment.dims.begin(), attachment.dims.end());
  append_tensor(bare, attachment.data, out);
}

// Roughly the bytes that the references among them take, to reserve. Data inside the model is not
// counted.
std::size_t encoded_bytes(const std::vector<Placed>& all) {
  constexpr std::size_t kTagsAndKeys = 64;
  std::size_t bytes = 0;
  for (const Placed& placed : all) {
    const auto* const ref = std::get_if<ExternalRef>(&placed.attachment->data);
    // A location usually contains the name.
    bytes += ref == nullptr ? 0 : kTagsAndKeys + 2 * ref->location.size() + ref->checksum.size();
  }
  return bytes;
}

// New initializers become text one by one. Built as messages, 20,000 of them cost a save 2,000 page
// faults more, of 19,600 (docs/measurements.md).
void put_initializers(const std::vector<Placed>& all, const onnx::GraphProto& graph,
                      ModelEdits& edits) {
  NameMap<const onnx::TensorProto*> existing;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    existing.emplace(tensor.name(), &tensor);
  }
  ModelText added;
  BareTensor fresh;
  for (const Placed& placed : all) {
    const auto found = existing.empty() ? existing.end() : existing.find(placed.name());
    if (found != existing.end()) {
      BareTensor bare(*found->second);
      ModelText text;
      append(placed, bare, text);
      edits.replaced.insert_or_assign(found->second, std::move(text));
      continue;
    }
    if (added.bytes() == 0) {
      added.reserve(encoded_bytes(all));
    }
    const ModelText::Mark begin = added.here();
    append(placed, fresh, added);
    added.wrap(begin, onnx::GraphProto::kInitializerFieldNumber);
  }
  if (added.bytes() > 0) {
    edits.added.insert_or_assign({&graph, onnx::GraphProto::kInitializerFieldNumber},
                                 std::move(added));
  }
}

void remove_identities(const std::vector<Placed>& all, const onnx::GraphProto& graph,
                       ModelEdits& edits) {
  NameSet outputs;
  for (const Placed& placed : all) {
    if (placed.is(SlotKind::kIdentityOutput)) {
      outputs.insert(placed.name());
    }
  }
  if (outputs.empty()) {
    return;
  }
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.output_size() == 1 && outputs.contains(node.output(0))) {
      edits.removed.insert(&node);
    }
  }
}

void remove_inputs(const std::vector<Placed>& all, const onnx::GraphProto& graph,
                   ModelEdits& edits) {
  auto filled = table_for<NameSet>(all.size());
  for (const Placed& placed : all) {
    filled.insert(placed.name());
  }
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (filled.contains(input.name())) {
      edits.removed.insert(&input);
    }
  }
}

onnx::ValueInfoProto input_for(const Placed& placed) {
  onnx::ValueInfoProto input;
  input.set_name(placed.name());
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(placed.attachment->data_type);
  type.mutable_shape();
  for (const std::int64_t dim : placed.attachment->dims) {
    type.mutable_shape()->add_dim()->set_dim_value(dim);
  }
  return input;
}

void add_missing_inputs(const std::vector<Placed>& all, const onnx::GraphProto& graph,
                        ModelEdits& edits) {
  NameSet inputs;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    inputs.insert(input.name());
  }
  ModelText added;
  for (const Placed& placed : all) {
    if (inputs.insert(placed.name()).second) {
      const ModelText::Mark begin = added.here();
      append_message(input_for(placed), added);
      added.wrap(begin, onnx::GraphProto::kInputFieldNumber);
    }
  }
  if (added.bytes() > 0) {
    edits.added.insert_or_assign({&graph, onnx::GraphProto::kInputFieldNumber}, std::move(added));
  }
}

void replace_data(const onnx::TensorProto& tensor, const TensorData& data, ModelEdits& edits) {
  BareTensor bare(tensor);
  ModelText text;
  append_tensor(bare, data, text);
  edits.replaced.insert_or_assign(&tensor, std::move(text));
}

}  // namespace

std::size_t ModelEdits::text_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [message, text] : replaced) {
    bytes += text.text_bytes();
  }
  for (const auto& [message, text] : before) {
    bytes += text.text_bytes();
  }
  for (const auto& [field, text] : added) {
    bytes += text.text_bytes();
  }
  return bytes;
}

Status attach(const Model& model, std::span<const Attachment> attachments, MatchedInputs inputs,
              ModelEdits& edits) {
  const GraphFacts& facts = model.facts();
  TRY(check_attachments(facts, attachments));
  TRY_ASSIGN(const auto graphs, list_graphs(model.proto().graph()));
  const std::vector<std::vector<Placed>> placed = by_graph(facts, attachments, graphs.size());
  for (std::size_t g = 0; g < placed.size(); ++g) {
    put_initializers(placed[g], *graphs[g].graph, edits);
    remove_identities(placed[g], *graphs[g].graph, edits);
  }
  const onnx::GraphProto& main = *graphs[0].graph;
  if (facts.ir_version < kFirstIrWithoutInputs) {
    add_missing_inputs(placed[0], main, edits);
  } else if (inputs == MatchedInputs::kRemove) {
    remove_inputs(placed[0], main, edits);
  }
  return {};
}

void remove_parent_note(const Model& model, ModelEdits& edits) {
  for (const onnx::StringStringEntryProto& entry : model.proto().metadata_props()) {
    if (entry.key() == kCutFromKey) {
      edits.removed.insert(&entry);
    }
  }
}

void relocate(const Model& model, std::size_t external_tensor, const TensorData& data,
              ModelEdits& edits) {
  replace_data(ModelAccess::external_proto(model, external_tensor), data, edits);
}

void externalize(const Model& model, std::size_t inline_tensor, const ExternalRef& ref,
                 ModelEdits& edits) {
  replace_data(ModelAccess::inline_proto(model, inline_tensor), ref, edits);
}

}  // namespace onnx_external
