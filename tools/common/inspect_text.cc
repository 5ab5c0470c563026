#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/size_text.h"
#include "base/text.h"
#include "common/output.h"
#include "common/text_report.h"
#include "inspect/module_tree.h"
#include "onnx/graph_facts.h"
#include "reports/documents.h"

namespace onnx_external {
namespace {

// The same short names as for tensors.
std::string type_name(std::int32_t elem_type) {
  if (elem_type == 0) {
    return "type not stated";
  }
  const auto dtype = dtype_from_onnx(elem_type);
  return dtype ? std::string(torch_name(*dtype)) : ascii_lower(onnx_type_name(elem_type));
}

std::string slot_shape(const Slot& slot) {
  if (!slot.shape) {
    return "shape not stated";
  }
  std::string out = "[";
  for (const auto& dim : *slot.shape) {
    out += (out.size() == 1 ? "" : ", ") + (dim ? std::to_string(*dim) : "?");
  }
  return out + "]";
}

// An input may be the caller's, or a weight that was left out.
std::string_view what_is_open(SlotKind kind) {
  switch (kind) {
    case SlotKind::kGraphInput:
      return "input";
    case SlotKind::kInitializer:
      return "without data";
    case SlotKind::kUndefinedName:
    case SlotKind::kIdentityOutput:
      break;
  }
  return "without a value";
}

// "checkpoint.pt @64: strides [1, 8], neg".
std::string view_text(const InspectedView& view) {
  std::vector<std::string> traits;
  if (!view.strides.empty()) {
    traits.push_back((view.expanded ? "expanded, strides " : "strides ") +
                     shape_text(view.strides));
  }
  for (const auto& [name, is_so] : {std::pair("conj", view.conj),
                                    {"neg", view.neg},
                                    {"deflated", view.deflated},
                                    {"big-endian", view.big_endian}}) {
    if (is_so) {
      traits.emplace_back(name);
    }
  }
  const std::string place = !view.quantized.empty() ? "floats of " + shown(view.quantized)
                            : view.file.empty()
                                ? "computed"
                                : fmt::format("{} @{}", shown(view.file), view.offset);
  return traits.empty() ? place : fmt::format("{}: {}", place, fmt::join(traits, ", "));
}

// `elsewhere`: what stands for a tensor that is in no file of its own.
std::string place_text(const InspectedTensor& tensor, std::string_view elsewhere) {
  if (!tensor.problem.empty()) {
    return "problem: " + shown(tensor.problem);
  }
  if (tensor.view) {
    return view_text(*tensor.view);
  }
  const std::string place = tensor.file ? shown(*tensor.file) + " @" + std::to_string(tensor.offset)
                                        : std::string(elsewhere);
  return tensor.scheme && !tensor.key.empty() ? place + ", from " + shown(tensor.key) : place;
}

std::string inspect_table(const Inspection& inspection) {
  const bool digests = std::any_of(inspection.tensors.begin(), inspection.tensors.end(),
                                   [](const InspectedTensor& t) { return !t.sha256.empty(); });
  std::vector<std::vector<std::string>> rows{{"name", "type", "size", "place"}};
  if (digests) {
    rows.front().emplace_back("sha256");
  }
  for (const InspectedTensor& tensor : inspection.tensors) {
    rows.push_back({shown(tensor.name), form_text(tensor), size_text(tensor.nbytes),
                    place_text(tensor, inspection.format == kModelFormat ? "(inline)" : "-")});
    if (digests) {
      rows.back().push_back(tensor.sha256);
    }
  }
  return table_text(rows, {2});
}

// The modules as a table, indented by depth.
std::string tree_table(const Inspection& inspection) {
  const std::vector<ModuleNode> tree = make_module_tree(inspection.tensors);
  std::vector<std::vector<std::string>> rows{{"module", "tensors", "size", "part"}};
  std::vector<std::pair<std::size_t, std::size_t>> open{{0, 0}};  // (node, depth)
  while (!open.empty()) {
    const auto [index, depth] = open.back();
    open.pop_back();
    const ModuleNode& node = tree[index];
    const double part = inspection.bytes == 0 ? 0
                                              : 100 * static_cast<double>(node.bytes) /
                                                    static_cast<double>(inspection.bytes);
    rows.push_back({std::string(2 * depth, ' ') + (depth == 0 ? "." : shown(node.label)),
                    std::to_string(node.tensor_count), size_text(node.bytes),
                    fmt::format("{:.1f} %", part)});
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      if (!tree[*child].is_tensor()) {
        open.emplace_back(*child, depth + 1);
      }
    }
  }
  return table_text(rows, {1, 2, 3});
}

// "55 tensors, 16 of them inline" of a model that has both kinds.
std::string tensors_text(const Inspection& inspection) {
  const auto is_inline = [](const InspectedTensor& tensor) {
    return !tensor.file && !tensor.view && tensor.problem.empty();
  };
  const auto inline_ones =
      std::count_if(inspection.tensors.begin(), inspection.tensors.end(), is_inline);
  const std::string text = count_text(inspection.tensors.size(), "tensor");
  const bool has_both = inline_ones > 0 && std::cmp_less(inline_ones, inspection.tensors.size());
  return inspection.format == kModelFormat && has_both
             ? fmt::format("{}, {} of them inline", text, inline_ones)
             : text;
}

// "torch-zip: 17 tensors, 5.34 kB; version 3, pickle protocol 2, little-endian; 1 file, 9.01 kB".
std::string summary_line(const Inspection& inspection) {
  std::vector<std::string> facts;
  if (!inspection.version.empty()) {
    facts.push_back((inspection.format == kModelFormat ? "" : "version ") +
                    shown(inspection.version));
  }
  if (!inspection.producer.empty()) {
    facts.push_back("by " + shown(inspection.producer));
  }
  if (inspection.pickle_protocol) {
    facts.push_back(fmt::format("pickle protocol {}", *inspection.pickle_protocol));
  }
  if (!inspection.byte_order.empty()) {
    facts.push_back(inspection.byte_order == "mixed" ? "both byte orders"
                                                     : inspection.byte_order + "-endian");
  }
  return fmt::format("{}: {}, {}; {}{}{}, {}\n", inspection.format, tensors_text(inspection),
                     size_text(inspection.bytes), fmt::join(facts, ", "), facts.empty() ? "" : "; ",
                     count_text(inspection.files, "file"), size_text(inspection.file_bytes));
}

// "in nodes: 2 tensors, 2.05 kB: a.weight (float32 [16, 16]) ...; save-external --attributes".
std::string node_tensors_text(const std::vector<InspectedTensor>& tensors) {
  constexpr std::size_t kShown = 5;
  if (tensors.empty()) {
    return "";
  }
  std::uint64_t bytes = 0;
  std::vector<std::string> shown_ones;
  for (const InspectedTensor& tensor : tensors) {
    bytes = add_bytes(bytes, tensor.nbytes);
    if (shown_ones.size() < kShown) {
      shown_ones.push_back(fmt::format("{} ({})", shown(tensor.name), form_text(tensor)));
    }
  }
  const std::size_t rest = tensors.size() - shown_ones.size();
  return fmt::format("in nodes: {}, {}: {}{}; save-external --attributes moves them out\n",
                     count_text(tensors.size(), "tensor"), size_text(bytes),
                     fmt::join(shown_ones, ", "),
                     rest == 0 ? "" : fmt::format(" and {} more", rest));
}

}  // namespace

std::string inspect_text(const Inspection& inspection, Listing listing) {
  std::string out;
  if (!inspection.tensors.empty()) {
    out = listing == Listing::kTree ? tree_table(inspection) : inspect_table(inspection);
  }
  for (const Slot& slot : inspection.open_slots) {
    out += fmt::format("{}: {}: {} {}\n", what_is_open(slot.kind), quote(slot.name),
                       type_name(slot.elem_type), slot_shape(slot));
  }
  out += node_tensors_text(inspection.node_tensors);
  for (const auto& [key, value] : inspection.metadata) {
    out += fmt::format("{}: {}\n", shown(key), value);
  }
  for (const auto& [name, first] : inspection.tied) {
    out += fmt::format("tied: {} shares {}\n", shown(name), shown(first));
  }
  for (const auto& [dropped, kept] : inspection.tied_names) {
    out += fmt::format("tied: {} was left out for {}\n", shown(dropped), shown(kept));
  }
  for (const OpaqueObject& object : inspection.opaque_objects) {
    out += fmt::format("object: {}: {}, not read\n", quote(object.path), quote(object.type));
  }
  for (const RefusedTensor& refused : inspection.refused_tensors) {
    out += fmt::format("refused: {}: {}\n", quote(refused.path), refused.reason);
  }
  out += notes_text(inspection.notes);
  if (inspection.refusal) {
    out += "save-external would reject it: " +
           error_text(*inspection.refusal, {.how_to_see_all = kHowToSeeAll});
  }
  return out + summary_line(inspection);
}

std::string modules_text(const ModuleList& list) {
  constexpr std::size_t kMostDepth = 32;
  std::vector<std::string> labels;
  std::size_t width = 0;
  for (const ModuleFacts& module : list.modules) {
    const auto dots =
        static_cast<std::size_t>(std::count(module.name.begin(), module.name.end(), '.'));
    labels.push_back(std::string(2 * std::min(dots, kMostDepth), ' ') + shown(module.name));
    width = std::max(width, labels.back().size());
  }
  std::string out;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const ModuleFacts& module = list.modules[i];
    out += fmt::format("{:<{}}  {:>12}  {:>16}  {:>9}\n", labels[i], width,
                       count_text(module.nodes, "node"),
                       fmt::format("{} parameters", module.parameters), size_text(module.bytes));
  }
  return out + fmt::format("{}, {}, {} parameters, {}; {} of no module\n",
                           count_text(list.modules.size(), "module"),
                           count_text(list.all.nodes, "node"), list.all.parameters,
                           size_text(list.all.bytes), count_text(list.unassigned, "node"));
}

}  // namespace onnx_external
