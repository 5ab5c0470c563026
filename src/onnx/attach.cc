// Model::attach: puts tensors into the graph.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/cut_tensors.h"
#include "onnx/external_data.h"
#include "onnx/graph_list.h"
#include "onnx/wire_reader.h"
#include "onnx_external/model.h"

namespace onnx_external {
namespace {

// Before this version every initializer had to be a graph input as well.
constexpr std::int64_t kFirstIrWithoutInputs = 4;

struct Placed {
  const Attachment* attachment = nullptr;
  const Slot* slot = nullptr;  // nothing for new initializers

  [[nodiscard]] const std::string& name() const {
    return slot == nullptr ? attachment->name : slot->name;
  }
  [[nodiscard]] bool is(SlotKind kind) const { return slot != nullptr && slot->kind == kind; }
};

// Slots that something defines already, and what is no slot.
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
  const bool adds = std::any_of(
      attachments.begin(), attachments.end(),
      [](const Attachment& attachment) { return attachment.slot == Attachment::kNoSlot; });
  NameSet names = adds ? defined_names(facts) : NameSet();
  std::vector<bool> filled(facts.slots.size());
  for (const Attachment& attachment : attachments) {
    if (attachment.slot != Attachment::kNoSlot) {
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

// Attachments of each graph, in the order of their slots, then the slotless ones (main graph).
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
    if (attachment->slot == Attachment::kNoSlot) {
      placed[0].push_back({attachment, nullptr});
    } else {
      const Slot& slot = facts.slots[attachment->slot];
      placed[slot.graph].push_back({attachment, &slot});
    }
  }
  return placed;
}

void fill(const Placed& placed, const Placeholders& placeholders, onnx::TensorProto& tensor) {
  const Attachment& attachment = *placed.attachment;
  tensor.set_name(placed.name());
  tensor.set_data_type(attachment.data_type);
  tensor.mutable_dims()->Assign(attachment.dims.begin(), attachment.dims.end());
  write_tensor_data(attachment.data, placeholders, tensor);
}

// About what the references among them take; data that is to stand in the model comes on top.
std::size_t encoded_bytes(std::span<const Attachment> attachments) {
  constexpr std::size_t kTagsAndKeys = 64;
  std::size_t bytes = 0;
  for (const Attachment& attachment : attachments) {
    const auto* const ref = std::get_if<ExternalRef>(&attachment.data);
    // A location holds the name, as a rule.
    bytes += ref == nullptr ? 0 : kTagsAndKeys + 2 * ref->location.size() + ref->checksum.size();
  }
  return bytes;
}

void append_initializer(const onnx::TensorProto& tensor, std::string& encoded) {
  append_length_header(encoded, kInitializerField, tensor.ByteSizeLong());
  tensor.AppendPartialToString(&encoded);
}

// New ones go to `encoded`, if it is given.
void put_initializers(const std::vector<Placed>& all, const Placeholders& placeholders,
                      onnx::GraphProto& graph, std::string* encoded) {
  OwnedNameMap<onnx::TensorProto*> existing;
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    existing.emplace(tensor.name(), &tensor);
  }
  onnx::TensorProto scratch;
  for (const Placed& placed : all) {
    const auto found = existing.empty() ? existing.end() : existing.find(placed.name());
    if (found != existing.end()) {
      fill(placed, placeholders, *found->second);
    } else if (encoded == nullptr) {
      fill(placed, placeholders, *graph.add_initializer());
    } else {
      fill(placed, placeholders, scratch);
      append_initializer(scratch, *encoded);
    }
  }
}

// Removes the elements that `gone` names; the others keep their order.
template <typename Field, typename Gone>
void remove_if(Field& field, const Gone& gone) {
  int kept = 0;
  for (int i = 0; i < field.size(); ++i) {
    if (!gone(field.Get(i))) {
      field.SwapElements(kept++, i);
    }
  }
  field.DeleteSubrange(kept, field.size() - kept);
}

void remove_identities(const std::vector<Placed>& all, onnx::GraphProto& graph) {
  NameSet outputs;
  for (const Placed& placed : all) {
    if (placed.is(SlotKind::kIdentityOutput)) {
      outputs.insert(placed.name());
    }
  }
  if (!outputs.empty()) {
    remove_if(*graph.mutable_node(), [&](const onnx::NodeProto& node) {
      return node.output_size() == 1 && outputs.contains(node.output(0));
    });
  }
}

void remove_inputs(const std::vector<Placed>& all, onnx::GraphProto& graph) {
  auto filled = table_for<NameSet>(all.size());
  for (const Placed& placed : all) {
    filled.insert(placed.name());
  }
  remove_if(*graph.mutable_input(),
            [&](const onnx::ValueInfoProto& input) { return filled.contains(input.name()); });
}

void add_missing_inputs(const std::vector<Placed>& all, onnx::GraphProto& graph) {
  OwnedNameSet inputs;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    inputs.insert(input.name());
  }
  for (const Placed& placed : all) {
    if (!inputs.insert(placed.name()).second) {
      continue;
    }
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(placed.name());
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(placed.attachment->data_type);
    type.mutable_shape();
    for (const std::int64_t dim : placed.attachment->dims) {
      type.mutable_shape()->add_dim()->set_dim_value(dim);
    }
  }
}

}  // namespace

Status Model::attach(std::span<const Attachment> attachments, MatchedInputs inputs) {
  return attach(attachments, inputs, nullptr);
}

Result<std::string> Model::attach_encoded(std::span<const Attachment> attachments,
                                          MatchedInputs inputs) {
  std::string encoded;
  encoded.reserve(encoded_bytes(attachments));
  TRY(attach(attachments, inputs, &encoded));
  return encoded;
}

// Into subgraphs nothing goes encoded: there are few such tensors.
Status Model::attach(std::span<const Attachment> attachments, MatchedInputs inputs,
                     std::string* encoded) {
  TRY(check_attachments(facts_, attachments));
  TRY_ASSIGN(auto graphs, list_graphs(*proto_->mutable_graph()));
  const std::vector<std::vector<Placed>> placed = by_graph(facts_, attachments, graphs.size());
  for (std::size_t g = 0; g < placed.size(); ++g) {
    put_initializers(placed[g], cuts_->placeholders(), *graphs[g].graph,
                     g == 0 ? encoded : nullptr);
  }
  onnx::GraphProto& main = *graphs[0].graph;
  if (facts_.ir_version < kFirstIrWithoutInputs) {
    add_missing_inputs(placed[0], main);
  } else if (inputs == MatchedInputs::kRemove) {
    remove_inputs(placed[0], main);
  }
  // Innermost graphs first: removing a node frees the subgraphs in it (an Identity has none, but
  // the file may say otherwise).
  for (std::size_t g = placed.size(); g-- > 0;) {
    remove_identities(placed[g], *graphs[g].graph);
  }
  external_protos_.clear();
  inline_protos_.clear();
  return {};
}

}  // namespace onnx_external
