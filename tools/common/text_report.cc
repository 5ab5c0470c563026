#include "common/text_report.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/size_text.h"
#include "base/text.h"
#include "common/output.h"
#include "common/quantize_text.h"
#include "reports/remark_text.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMinRatedBytes = 10'000'000;

constexpr std::size_t kListedColumns = 100;

// "label: a, b ... and 5 more (-v lists all)", in about kListedColumns; nothing for an empty list.
std::string names_line(std::string_view label, const std::vector<std::string>& names, Lists lists) {
  if (names.empty()) {
    return {};
  }
  const std::size_t most = lists == Lists::kFull ? names.size() : kListedNames;
  std::string line(label);
  std::size_t listed = 0;
  for (; listed < std::min(most, names.size()); ++listed) {
    const std::string name = shown(names[listed]);
    if (lists != Lists::kFull && listed > 0 && line.size() + name.size() > kListedColumns) {
      break;
    }
    line += (listed == 0 ? ": " : ", ") + name;
  }
  return names.size() > listed
             ? line + fmt::format(" and {} more (-v lists all)\n", names.size() - listed)
             : line + "\n";
}

std::vector<std::string> tied_names(const std::vector<LeftKey>& keys) {
  std::vector<std::string> names;
  for (const LeftKey& key : keys) {
    if (key.verdict == KeyVerdict::kTied) {
      names.push_back(fmt::format("{} shares {}", key.name, key.tied_to));
    }
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
    out += names_line(fmt::format("overlaid: {} of checkpoint {} by the keys of checkpoint {}",
                                  count_text(list.size(), "key"), places.first, places.second),
                      list, lists);
  }
  return out;
}

// "unused module: decoder (12 keys)", one line per module.
std::string unused_modules_text(const SaveReport& report, Lists lists) {
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
  std::vector<std::string> names;
  for (const LeftKey& key : report.keys) {
    if (key.verdict != KeyVerdict::kTied && key.verdict != KeyVerdict::kBaked &&
        !key.in_unused_module) {
      names.push_back(key.name);
    }
  }
  return names;
}

// The lines about keys without a partner.
std::string keys_text(const SaveReport& report, Lists lists) {
  return notes_text(report.notes) + overlaid_text(report.overlaid, lists) +
         unused_modules_text(report, lists) +
         names_line("unused keys", single_keys(report), lists) +
         names_line("baked into the graph", report.keys_with({KeyVerdict::kBaked}), lists) +
         names_line("tied", tied_names(report.keys), lists);
}

// Lists the data of the graph that is kept although no option asks for it, because the exporter
// made it and no key corresponds to it.
std::vector<std::string> constants(const SavedModel& report) {
  std::vector<std::string> names;
  for (const LeftName& left : report.left) {
    if (left.verdict == SlotVerdict::kKept && !left.by_option) {
      names.push_back(left.name);
    }
  }
  return names;
}

// The lines about names of a graph without a partner, and about its external data.
std::string graph_text(const SavedModel& report, Lists lists) {
  return names_line("model inputs", report.inputs_left(), lists) +
         names_line("constants of the graph, for which checkpoints have no keys", constants(report),
                    lists) +
         names_line("from the graph, not from the checkpoint", report.kept_by_option, lists) +
         names_line("without data", report.slots_left(), lists) +
         names_line("keep their old data, because they are not in the checkpoint",
                    report.left_old(), lists) +
         left_out_text(report.remarks);
}

std::string oversized_text(const SaveReport& report, Lists lists) {
  return names_line("warning: larger than the maximum shard size, each in a shard of its own",
                    report.oversized, lists);
}

// "warning: 3 values became infinite when they were converted: a.weight (2, up to 1e+06), ..."
std::string overflows_text(const std::vector<SavedTensor>& tensors, Lists lists) {
  std::uint64_t values = 0;
  std::vector<std::string> names;
  for (const SavedTensor& tensor : tensors) {
    if (tensor.overflow.values > 0) {
      values += tensor.overflow.values;
      names.push_back(fmt::format("{} ({}, up to {:.3g})", tensor.slot, tensor.overflow.values,
                                  tensor.overflow.largest));
    }
  }
  return names_line(fmt::format("warning: {} became infinite when they were converted",
                                count_text(values, "value")),
                    names, lists);
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
  out +=
      names_line("recorded, but not an input of the graph", {unused.begin(), unused.end()}, lists);
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
  const std::vector<SavedTensor>& tensors = report.models.front().tensors;
  const std::size_t files = count_files(tensors);
  if (report.linked_bytes > 0 && report.bytes > 0) {
    return fmt::format("{}, {} linked and {} written, in {}", count_text(tensors.size(), "tensor"),
                       size_text(report.linked_bytes), size_text(report.bytes),
                       count_text(files, "file"));
  }
  if (report.linked_bytes > 0) {
    return fmt::format("{}, {} linked to {}", count_text(tensors.size(), "tensor"),
                       size_text(report.linked_bytes), count_text(files, "file"));
  }
  return fmt::format("{}, {} in {}", count_text(tensors.size(), "tensor"), size_text(report.bytes),
                     files == 0 && report.bytes > 0 ? "the model" : count_text(files, "file"));
}

// "out/initializers", the folder that the files share; "" if there is none.
std::string data_folder(const SavedModel& report) {
  std::set<std::string_view> folders;
  for (const SavedTensor& tensor : report.tensors) {
    const std::size_t slash = tensor.file.rfind('/');
    if (slash != std::string::npos) {
      folders.insert(std::string_view(tensor.file).substr(0, slash));
    }
  }
  return folders.size() == 1 ? (report.model.parent_path() / *folders.begin()).string() : "";
}

// "incomplete (--partial): 39 weights without data"; nothing for complete models.
std::string incomplete_text(std::span<const SavedModel> models) {
  std::size_t open = 0;
  std::size_t old = 0;
  for (const SavedModel& model : models) {
    open += model.slots_left().size();
    old += model.left_old().size();
  }
  if (open + old == 0) {
    return {};
  }
  std::string text = "incomplete (--partial): ";
  text += open == 0 ? "" : count_text(open, "weight") + " without data";
  text += open == 0 || old == 0 ? "" : ", ";
  text += old == 0 ? "" : count_text(old, "weight") + " with old values";
  return text;
}

// The same in front of what else is said of a model.
std::string incomplete_lead(const SavedModel& model) {
  const std::string text = incomplete_text({&model, 1});
  return text.empty() ? text : text + "; ";
}

// Returns to what extent the saved model was verified. `complete` is false if something is missing.
std::string verdict_text(const SaveReport& report) {
  if (!report.verified) {
    return "not verified";
  }
  if (report.linked_bytes > 0 && report.bytes > 0) {
    return report.complete ? "verified, every written byte and every linked range"
                           : "the rest is verified";
  }
  if (report.linked_bytes > 0) {
    return report.complete ? "verified, every range; no byte was read"
                           : "the ranges of the rest are verified; no byte was read";
  }
  return report.complete ? "verified, every byte" : "the rest is verified";
}

// "; 3 weights kept from the graph (--keep); 2 keys ignored (--ignore)": what the caller decided.
std::string choices_text(const SaveReport& report) {
  std::size_t kept = 0;
  for (const SavedModel& model : report.models) {
    kept += model.kept_by_option.size();
  }
  std::string text;
  if (kept > 0) {
    text += fmt::format("; {} kept from the graph (--keep)", count_text(kept, "weight"));
  }
  if (const std::size_t ignored = report.keys_with({KeyVerdict::kIgnored}).size(); ignored > 0) {
    text += fmt::format("; {} ignored (--ignore)", count_text(ignored, "key"));
  }
  if (const std::size_t skipped = report.skipped_keys().size(); skipped > 0) {
    text += fmt::format("; {} without a slot left out", count_text(skipped, "key"));
  }
  return text;
}

// The same as the first line of a report that does not begin with its verdict.
std::string first_line(const SaveReport& report) {
  const std::string incomplete = incomplete_text(report.models);
  const std::string choices = choices_text(report);
  if (incomplete.empty() && choices.empty()) {
    return {};
  }
  return (incomplete.empty() ? choices.substr(2) : incomplete + choices) + "\n";
}

// "; 1.24 s, 1.77 GB/s": the rate of a small save has no meaning.
std::string rate_text(const SaveReport& report) {
  return report.bytes >= kMinRatedBytes ? "; " + speed_text(report.bytes, report.seconds) : "";
}

}  // namespace

std::string notes_text(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& note : notes) {
    out += "note: " + calm(note) + "\n";
  }
  return out;
}

namespace {

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

// Width of the terminal that stdout is; 0 if it is none, or does not state its width.
std::size_t output_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// One line per slot. On a terminal that is too narrow, the column of files is left out: it is the
// widest one, and follows from the slots and the layout.
std::string slots_text(const SavedModel& report, bool is_linked) {
  std::vector<std::vector<std::string>> rows{{"slot", "key", "rule", "file", "size"}};
  for (const SavedTensor& tensor : report.tensors) {
    if (tensor.packed) {
      continue;  // matrices_text() has it
    }
    rows.push_back({shown(tensor.slot), tensor.rule ? shown(tensor.key) : "-",
                    tensor.rule ? rule_text(*tensor.rule, tensor.recipe)
                    : is_linked ? "linked"
                                : "copied",
                    tensor.file.empty() ? "(inline)" : shown(tensor.file),
                    size_text(tensor.length)});
  }
  if (rows.size() == 1 && !report.quantized.empty()) {
    return "";
  }
  const std::string table = table_text(rows, {4});
  const std::size_t columns = output_columns();
  if (columns == 0 || table.find('\n') <= columns) {  // each line is as wide as the first
    return table;
  }
  for (auto& row : rows) {
    row.erase(row.begin() + 3);
  }
  return table_text(rows, {3});
}

// ", with initializers/manifest.json": a dry run names each file that a save would write.
std::string manifest_text(const SavedModel& model) {
  return ", with " + shown(model.manifest);
}

std::string saved_model_text(const SaveReport& report, Lists lists) {
  const SavedModel& model = report.models.front();
  const std::string folder = report.linked_bytes > 0 ? "" : data_folder(model);
  return fmt::format("{}: {}{}{}; {}{}{}\n", shown(model.model.string()), incomplete_lead(model),
                     totals_text(report), folder.empty() ? "" : " in " + shown(folder) + "/",
                     verdict_text(report), choices_text(report), rate_text(report)) +
         quantized_text(model, lists) + overflows_text(model.tensors, lists) +
         keys_text(report, lists) + graph_text(model, lists) + oversized_text(report, lists) +
         left_data_text(report, lists) + test_data_text(report.test_data, lists);
}

std::string planned_model_text(const SaveReport& report, Lists lists) {
  const SavedModel& model = report.models.front();
  return first_line(report) + matrices_text(model) + slots_text(model, report.linked_bytes > 0) +
         quantized_text(model, lists) + derived_text(report.derived) + keys_text(report, lists) +
         graph_text(model, lists) + oversized_text(report, lists) +
         test_data_text(report.test_data, lists) +
         fmt::format("{}: {}{}; dry run, nothing was written\n", shown(model.model.string()),
                     totals_text(report), manifest_text(model));
}

// Returns a line for each model, then the facts about all models.
std::string models_text(const SaveReport& report, bool is_dry_run, Lists lists) {
  std::string out = first_line(report);
  std::vector<SavedTensor> all;
  std::uint64_t bytes = 0;  // if each model had its own
  for (const SavedModel& model : report.models) {
    all.insert(all.end(), model.tensors.begin(), model.tensors.end());
    bytes += model.bytes;
    out += fmt::format("{}: {}{}, {} in {}{}\n", shown(model.model.string()),
                       incomplete_lead(model), count_text(model.tensors.size(), "tensor"),
                       size_text(model.bytes), count_text(count_files(model.tensors), "file"),
                       is_dry_run ? manifest_text(model) : "") +
           (is_dry_run ? matrices_text(model) + slots_text(model, report.linked_bytes > 0) : "") +
           quantized_text(model, lists) + graph_text(model, lists);
  }
  const std::uint64_t stored = report.linked_bytes + report.bytes;
  return out + derived_text(report.derived) +
         fmt::format("{}{}: {} in {}, {} if nothing were shared; {}{}\n",
                     report.folder.empty() ? "" : shown(report.folder.string()) + ": ",
                     count_text(report.models.size(), "model"), size_text(stored),
                     count_text(count_files(all), "file"), size_text(bytes),
                     is_dry_run ? "dry run, nothing was written" : verdict_text(report),
                     is_dry_run ? "" : rate_text(report)) +
         overflows_text(all, lists) + keys_text(report, lists) + oversized_text(report, lists) +
         left_data_text(report, lists);
}

}  // namespace

std::string save_text(const SaveReport& report, RunMode mode, Lists lists) {
  const bool is_dry_run = mode == RunMode::kDryRun;
  if (report.models.size() > 1) {
    return models_text(report, is_dry_run, lists);
  }
  return is_dry_run ? planned_model_text(report, lists) : saved_model_text(report, lists);
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
