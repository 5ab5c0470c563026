#include "common/text_report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "common/documents.h"
#include "common/output.h"
#include "inspect/module_tree.h"

namespace onnx_external {
namespace {

constexpr std::size_t kListedNames = 5;
constexpr std::uint64_t kMinRatedBytes = 10'000'000;

// "label: a, b ... and 5 more (-v lists all)"; nothing for an empty list.
std::string names_line(std::string_view label, const std::vector<std::string>& names, Lists lists) {
  if (names.empty()) {
    return {};
  }
  const std::size_t most = lists == Lists::kFull ? names.size() : kListedNames;
  std::string line(label);
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) {
    line += (i == 0 ? ": " : ", ") + shown(names[i]);
  }
  return names.size() > most
             ? line + fmt::format(" and {} more (-v lists all)\n", names.size() - most)
             : line + "\n";
}

std::vector<std::string> tied_names(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::string> names;
  names.reserve(pairs.size());
  for (const auto& [key, matched] : pairs) {
    names.push_back(fmt::format("{} shares {}", key, matched));
  }
  return names;
}

// A line for each pair of checkpoints, counted from 1.
std::string overlaid_text(const std::vector<OverlaidTensor>& tensors, Lists lists) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::string>> names;
  for (const OverlaidTensor& tensor : tensors) {
    names[{tensor.argument + 1, tensor.by + 1}].push_back(tensor.name);
  }
  std::string out;
  for (const auto& [places, list] : names) {
    out += names_line(fmt::format("overlaid: {} of checkpoint {} by those of checkpoint {}",
                                  count_text(list.size(), "key"), places.first, places.second),
                      list, lists);
  }
  return out;
}

// "unused module: decoder (12 keys)", one line per module.
std::string modules_text(const SaveReport& report, Lists lists) {
  const std::size_t all = report.unused_modules.size();
  const std::size_t most = lists == Lists::kFull ? all : std::min(all, kListedNames);
  std::string out;
  for (std::size_t i = 0; i < most; ++i) {
    const UnusedModule& module = report.unused_modules[i];
    out +=
        fmt::format("unused module: {} ({})\n", shown(module.name), count_text(module.keys, "key"));
  }
  return all > most
             ? out + fmt::format("... and {} more unused modules (-v lists all)\n", all - most)
             : out;
}

// The unmatched keys that no other line mentions.
std::vector<std::string> single_keys(const SaveReport& report) {
  const NameSet baked(report.baked_keys.begin(), report.baked_keys.end());
  NameSet modules;
  for (const UnusedModule& module : report.unused_modules) {
    modules.insert(module.name);
  }
  std::vector<std::string> keys;
  for (const std::string& key : report.unmatched_keys) {
    bool elsewhere = baked.contains(key);
    for (std::size_t dot = key.find('.'); dot != std::string::npos && !elsewhere;
         dot = key.find('.', dot + 1)) {
      elsewhere = modules.contains(std::string_view(key).substr(0, dot));
    }
    if (!elsewhere) {
      keys.push_back(key);
    }
  }
  return keys;
}

// The lines about names without a partner, in both reports of save-external.
std::string leftovers_text(const SaveReport& report, Lists lists) {
  return overlaid_text(report.overlaid, lists) + modules_text(report, lists) +
         names_line("unused keys", single_keys(report), lists) +
         names_line("baked into the graph", report.baked_keys, lists) +
         names_line("tied", tied_names(report.tied_keys), lists) +
         names_line("model inputs", report.inputs_left, lists) +
         names_line("keep the graph's data", report.initializers_kept, lists) +
         names_line("missing in the checkpoint", report.slots_left, lists) +
         names_line("warning: larger than a shard may be, each in a shard of its own",
                    report.oversized, lists);
}

// "data left for 'keep.onnx': 7: 'initializers/a', ..."
std::string left_data_text(const SaveReport& report, Lists lists) {
  std::map<std::string_view, std::vector<std::string>> files;
  for (const auto& [file, model] : report.data_left_for) {
    files[model].push_back(file);
  }
  std::string out;
  for (const auto& [model, names] : files) {
    out += names_line("data left for " + quote(model), names, lists);
  }
  return out;
}

// "test data: 2 sets of 3 inputs in test_data_set_0 ...", and what they say about dimensions.
std::string test_data_text(const TestData& data, Lists lists) {
  if (data.sets.empty()) {
    return {};
  }
  std::string out =
      fmt::format("test data: {} of {}: {}{}\n", count_text(data.sets.size(), "set"),
                  count_text(data.sets.front().inputs.size(), "input"), test_set_name(0),
                  data.sets.size() > 1 ? " to " + test_set_name(data.sets.size() - 1) : "");
  std::set<std::string> unused;
  for (const TestDataSet& set : data.sets) {
    unused.insert(set.unused.begin(), set.unused.end());
  }
  out += names_line("recorded, but no input of the graph", {unused.begin(), unused.end()}, lists);
  for (const DimensionGuess& guess : data.dimensions) {
    const std::string what =
        fmt::format("dimension {} of {} ({}): recorded {}", guess.axis, quote(guess.input),
                    shown(guess.graph), shape_text(guess.seen));
    if (guess.verdict == DimensionVerdict::kMustBeSymbolic) {
      out += "must be symbolic, is fixed: " + what + "\n";
    } else if (guess.verdict == DimensionVerdict::kNeverVaried) {
      out += "symbolic, never varied: " + what + "\n";
    }
  }
  return out;
}

std::size_t count_files(const std::vector<SavedTensor>& tensors) {
  NameIndexSet files([&](std::uint32_t i) { return std::string_view(tensors[i].file); },
                     tensors.size());
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    count += !tensors[i].file.empty() && files.add(i) == i ? 1 : 0;
  }
  return count;
}

// "122 tensors, 46.8 MB in 102 files".
std::string totals_text(const SaveReport& report) {
  const std::size_t files = count_files(report.tensors);
  if (report.linked_bytes > 0) {
    return fmt::format("{}, {} linked to {}", count_text(report.tensors.size(), "tensor"),
                       size_text(report.linked_bytes), count_text(files, "file"));
  }
  std::string text =
      fmt::format("{}, {} in {}", count_text(report.tensors.size(), "tensor"),
                  size_text(report.bytes + report.bytes_reused),
                  files == 0 && report.bytes > 0 ? "the model" : count_text(files, "file"));
  if (report.files_reused > 0) {
    text += fmt::format(", {} ({}) reused", report.files_reused, size_text(report.bytes_reused));
  }
  return text;
}

// "out/initializers", the folder that the files share; "" if there is none.
std::string data_folder(const SaveReport& report) {
  std::set<std::string_view> folders;
  for (const SavedTensor& tensor : report.tensors) {
    const std::size_t slash = tensor.file.rfind('/');
    if (slash != std::string::npos) {
      folders.insert(std::string_view(tensor.file).substr(0, slash));
    }
  }
  return folders.size() == 1 ? (report.model.parent_path() / *folders.begin()).string() : "";
}

std::string shape_and_type(const InspectedTensor& tensor) {
  return tensor.dtype + " " + shape_text(tensor.shape);
}

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
  const std::string place =
      view.file.empty() ? "computed" : fmt::format("{} @{}", shown(view.file), view.offset);
  return traits.empty() ? place : fmt::format("{}: {}", place, fmt::join(traits, ", "));
}

std::string place_text(const InspectedTensor& tensor) {
  if (!tensor.problem.empty()) {
    return "problem: " + shown(tensor.problem);
  }
  if (tensor.view) {
    return view_text(*tensor.view);
  }
  return tensor.file ? shown(*tensor.file) + " @" + std::to_string(tensor.offset) : "-";
}

std::string inspect_table(const Inspection& inspection) {
  const bool digests = std::any_of(inspection.tensors.begin(), inspection.tensors.end(),
                                   [](const InspectedTensor& t) { return !t.sha256.empty(); });
  std::vector<std::vector<std::string>> rows{{"name", "type", "size", "place"}};
  if (digests) {
    rows.front().emplace_back("sha256");
  }
  for (const InspectedTensor& tensor : inspection.tensors) {
    rows.push_back(
        {shown(tensor.name), shape_and_type(tensor), size_text(tensor.nbytes), place_text(tensor)});
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
  return fmt::format("{}: {}, {}; {}{}{}, {}\n", inspection.format,
                     count_text(inspection.tensors.size(), "tensor"), size_text(inspection.bytes),
                     fmt::join(facts, ", "), facts.empty() ? "" : "; ",
                     count_text(inspection.files, "file"), size_text(inspection.file_bytes));
}

// What is known about the bytes if every range is the checkpoint's own.
std::string own_ranges_text(const VerifyReport& report) {
  const std::uint64_t known = report.linked - report.linked_without_crc;
  if (known == 0) {
    return "it records no CRC-32 to check their bytes by";
  }
  return report.linked_without_crc == 0
             ? "their bytes have the CRC-32 that it records"
             : fmt::format("the bytes of {} have the CRC-32 that it records, {} have none", known,
                           report.linked_without_crc);
}

// What the manifest alone proves.
std::string recorded_text(const VerifyReport& report) {
  const std::uint64_t known = report.tensors - report.linked_without_crc;
  if (report.linked_without_crc == 0) {
    return "every byte is what the manifest recorded";
  }
  return known == 0 ? "ranges only: all are linked to a checkpoint that records no CRC-32"
                    : fmt::format(
                          "{} are what the manifest recorded; of {} that are linked without "
                          "a recorded CRC-32 only the ranges were checked",
                          known, report.linked_without_crc);
}

std::string compared_text(const VerifyReport& report) {
  const std::string how =
      report.compared_by_manifest == 0 ? ""
      : report.compared_by_manifest == report.compared
          ? ", which is which by the manifest's record"
          : fmt::format(", {} of them by the manifest's record", report.compared_by_manifest);
  const std::string converted =
      report.converted == 0
          ? ""
          : fmt::format(", {} converted to another type", count_text(report.converted, "tensor"));
  if (report.compared == report.tensors && report.linked == report.tensors && report.tensors > 0) {
    return "every range is the checkpoint's own" + how + "; " + own_ranges_text(report);
  }
  if (report.compared == report.tensors && report.inline_compared == report.inline_tensors &&
      report.tensors + report.inline_tensors > 0) {
    return "every byte equals the checkpoint's" + converted + how;
  }
  return fmt::format("{} of {} compared with the checkpoint{}; {} not in it", report.compared,
                     count_text(report.tensors, "external tensor"), how,
                     report.tensors - report.compared);
}

// A message without the path of the file that it is about.
std::string_view cause_of(const Finding& finding) {
  const std::string_view message = finding.message;
  const std::string path = finding.file + ": ";
  const std::size_t place = finding.file.empty() ? std::string::npos : message.find(path);
  return place == std::string::npos ? message : message.substr(place + path.size());
}

// "open-slot: 21 tensors: 'a', 'b', ... and 16 more: nodes read it, and nothing defines it".
std::string cause_text(const std::vector<const Finding*>& findings, Names listed) {
  const Finding& first = *findings.front();
  if (findings.size() == 1) {
    return finding_text(first) + "\n";
  }
  std::set<std::string_view> files;
  std::vector<std::string> names;
  names.reserve(findings.size());
  for (const Finding* finding : findings) {
    files.insert(finding->file);
    names.push_back(finding->tensor.empty() ? finding->file : finding->tensor);
  }
  const bool is_of_one_file = files.size() == 1 && !first.file.empty() && !first.tensor.empty();
  const std::size_t most = listed == Names::kAll ? names.size() : kListedNames;
  return fmt::format("{}: {}: {}{}: {}\n", finding_code_name(first.code),
                     count_text(findings.size(), first.tensor.empty() ? "file" : "tensor"),
                     quote_list(names, most), is_of_one_file ? ": " + quote(first.file) : "",
                     cause_of(first));
}

// Groups findings by cause, in the order in which each cause first occurs.
std::string findings_text(const std::vector<Finding>& findings, Names listed) {
  std::map<std::tuple<FindingCode, bool, std::string_view>, std::size_t> known;
  std::vector<std::vector<const Finding*>> causes;
  for (const Finding& finding : findings) {
    const std::tuple cause(finding.code, finding.tensor.empty(), cause_of(finding));
    const auto [place, is_new] = known.try_emplace(cause, causes.size());
    if (is_new) {
      causes.emplace_back();
    }
    causes[place->second].push_back(&finding);
  }
  std::string out;
  for (const auto& cause : causes) {
    out += cause_text(cause, listed);
  }
  return out;
}

}  // namespace

std::string save_text(const SaveReport& report, Lists lists) {
  const bool linked = report.linked_bytes > 0;
  const bool has_folder = !linked && report.files_reused == 0;
  const std::string folder = has_folder ? data_folder(report) : "";
  const bool has_rate = report.bytes >= kMinRatedBytes;
  return fmt::format("{}: {}{}; {}{}\n{}", shown(report.model.string()), totals_text(report),
                     folder.empty() ? "" : " in " + shown(folder) + "/",
                     !report.verified ? "not verified"
                     : linked         ? "verified, every range; no byte was read"
                                      : "verified, every byte",
                     has_rate ? "; " + speed_text(report.bytes, report.seconds) : "",
                     leftovers_text(report, lists) + left_data_text(report, lists) +
                         test_data_text(report.test_data, lists));
}

// "map, transposed, cast"
std::string rule_text(Rule rule, const Recipe& recipe) {
  return std::string(rule_name(rule)) + (recipe.empty() ? "" : ", " + recipe_done_text(recipe));
}

// "derived: w is 64 parts, stacked along dimension 0, transposed"
std::string derived_text(const std::vector<DerivedTensor>& derived) {
  std::string text;
  for (const DerivedTensor& tensor : derived) {
    const Derivation& from = tensor.from;
    std::string how =
        from.kind == DerivationKind::kKey
            ? shown(from.key)
            : fmt::format("{}, {} along dimension {}", count_text(from.parts.size(), "part"),
                          from.kind == DerivationKind::kStack ? "stacked" : "joined", from.dim);
    text += fmt::format("derived: {} is {}{}\n", shown(tensor.name), how,
                        from.recipe.empty() ? "" : ", " + recipe_done_text(from.recipe));
  }
  return text;
}

// One line per slot.
std::string slots_text(const SaveReport& report) {
  std::vector<std::vector<std::string>> rows{{"slot", "key", "rule", "file", "size"}};
  for (const SavedTensor& tensor : report.tensors) {
    rows.push_back({shown(tensor.slot), tensor.rule ? shown(tensor.key) : "-",
                    tensor.rule               ? rule_text(*tensor.rule, tensor.recipe)
                    : report.linked_bytes > 0 ? "linked"
                                              : "copied",
                    tensor.file.empty() ? "(inline)" : shown(tensor.file),
                    size_text(tensor.length)});
  }
  return table_text(rows, {4});
}

std::string dry_run_text(const SaveReport& report, Lists lists) {
  return slots_text(report) + derived_text(report.derived) + leftovers_text(report, lists) +
         test_data_text(report.test_data, lists) +
         fmt::format("{}: {}; dry run, nothing was written\n", shown(report.model.string()),
                     totals_text(report));
}

std::string set_text(const SetReport& report, RunMode mode, Lists lists) {
  const bool is_dry_run = mode == RunMode::kDryRun;
  std::string out;
  std::vector<SavedTensor> all;
  std::uint64_t bytes = 0;  // if each model had its own
  for (const SaveReport& model : report.models) {
    all.insert(all.end(), model.tensors.begin(), model.tensors.end());
    bytes += model.bytes;
    out += fmt::format("{}: {}, {} in {}\n", shown(model.model.string()),
                       count_text(model.tensors.size(), "tensor"), size_text(model.bytes),
                       count_text(count_files(model.tensors), "file")) +
           (is_dry_run ? slots_text(model) : "") + leftovers_text(model, lists);
  }
  const SaveReport& shared = report.shared;
  const std::uint64_t stored =
      shared.linked_bytes > 0 ? shared.linked_bytes : shared.bytes + shared.bytes_reused;
  const bool has_rate = !is_dry_run && shared.bytes >= kMinRatedBytes;
  return out + derived_text(shared.derived) +
         fmt::format("{}{}: {} in {}, {} if nothing were shared; {}{}\n",
                     shared.model.empty() ? "" : shown(shared.model.string()) + ": ",
                     count_text(report.models.size(), "model"), size_text(stored),
                     count_text(count_files(all), "file"), size_text(bytes),
                     is_dry_run                ? "dry run, nothing was written"
                     : !shared.verified        ? "not verified"
                     : shared.linked_bytes > 0 ? "verified, every range; no byte was read"
                                               : "verified, every byte",
                     has_rate ? "; " + speed_text(shared.bytes, shared.seconds) : "") +
         leftovers_text(shared, lists) + left_data_text(shared, lists);
}

std::string verify_text(const std::filesystem::path& model, const VerifyReport& report,
                        Compared compared, Names names) {
  std::string out = findings_text(report.findings, names);
  const std::string how = compared == Compared::kCheckpoint ? compared_text(report)
                          : report.used_manifest            ? recorded_text(report)
                          : report.tensors == 0             ? "nothing to verify"
                                                : "structure only: no manifest, and no --against";
  const std::string inline_ones = report.tensors > 0 || report.inline_tensors == 0
                                      ? ""
                                      : fmt::format(", {} inside the model", report.inline_tensors);
  const std::string unseen = report.inline_uncompared == 0
                                 ? ""
                                 : fmt::format("; {} with data inside the model {} not compared",
                                               count_text(report.inline_uncompared, "initializer"),
                                               report.inline_uncompared == 1 ? "was" : "were");
  if (report.without_length > 0) {
    out += fmt::format(
        "warning: {} no length in external_data: some readers take the rest of the file, or refuse "
        "the model; save it anew with save-external\n",
        report.without_length == 1 ? "1 tensor has"
                                   : fmt::format("{} tensors have", report.without_length));
  }
  return out + fmt::format("{}: {}{}, {}: {}\n", shown(model.string()),
                           count_text(report.tensors, "external tensor"), inline_ones,
                           size_text(report.bytes),
                           report.ok() ? fmt::format("ok; {}{}", how, unseen)
                                       : count_text(report.findings.size(), "finding"));
}

std::string cut_text(const std::filesystem::path& piece, const CutReport& report, Lists lists) {
  std::string out = names_line("inputs", report.inputs, lists) +
                    names_line("outputs", report.outputs, lists) +
                    names_line("inputs that the model computes from outputs of the piece",
                               report.fed_back, lists) +
                    names_line("outputs of unknown type", report.untyped, lists);
  return out +
         fmt::format("{}: {}, {}, {} of weights in {}; {} written\n", shown(piece.string()),
                     count_text(report.nodes, "node"),
                     count_text(report.initializers, "initializer"), size_text(report.weight_bytes),
                     report.data_files.empty() ? "the piece"
                                               : count_text(report.data_files.size(), "data file"),
                     size_text(report.model_bytes));
}

std::string inspect_text(const Inspection& inspection, Listing listing) {
  std::string out;
  if (!inspection.tensors.empty()) {
    out = listing == Listing::kTree ? tree_table(inspection) : inspect_table(inspection);
  }
  for (const Slot& slot : inspection.open_slots) {
    out += fmt::format("open: {}: {}, {} {}\n", quote(slot.name), slot_kind_name(slot.kind),
                       type_name(slot.elem_type), slot_shape(slot));
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
  if (inspection.refusal) {
    out += "save-external would refuse it: " + error_text(*inspection.refusal, Lists::kShort);
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

std::string speed_text(std::uint64_t bytes, double seconds) {
  // The rate of a small save has no meaning.
  return seconds > 0 && bytes >= kMinRatedBytes
             ? fmt::format("{:.2f} s, {:.2f} GB/s", seconds,
                           static_cast<double>(bytes) / seconds / 1e9)
             : fmt::format("{:.2f} s", seconds);
}

std::string peak_memory_text() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return size_text(static_cast<std::uint64_t>(usage.ru_maxrss) * 1024) + " peak memory";
}

}  // namespace onnx_external
