#include "jobs/save_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "base/name_map.h"
#include "base/safe_path.h"
#include "base/size_text.h"
#include "base/text.h"
#include "mapping/verdict_lists.h"
#include "onnx/data_remarks.h"
#include "onnx/graph_facts.h"
#include "save/plan_checks.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& folder, const std::string& file) {
  std::error_code ignored;
  return check_relative_location(file) && fs::exists(folder / file, ignored);
}

// Returns the names in MappingOptions::keep that the graph has. The options of a set may name data
// of any of its graphs.
std::vector<std::string> kept_by_option(const GraphFacts& graph, const MappingOptions& options) {
  std::vector<std::string> kept;
  if (options.keep.empty() || options.keeps_rest) {
    return kept;
  }
  NameSet names;
  for (const Slot& slot : graph.slots) {
    names.insert(slot.name);
  }
  for (const ConstantTensor& constant : graph.constants) {
    names.insert(constant.name);
  }
  std::copy_if(options.keep.begin(), options.keep.end(), std::back_inserter(kept),
               [&](const std::string& name) { return names.contains(name); });
  return kept;
}

// The reports of the tensors of one model of the plan, which gives its texts away.
std::vector<SavedTensor> saved_tensors(SavePlan& plan,
                                       const std::map<std::size_t, Overflow>& overflows,
                                       std::uint32_t model_index) {
  std::vector<SavedTensor> saved;
  saved.reserve(plan.is_of_one() ? plan.tensors.size() : 0);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PlannedTensor& tensor = plan.tensors[i];
    if (tensor.model_index != model_index) {
      continue;
    }
    SavedTensor entry;
    if (const auto overflow = overflows.find(i); overflow != overflows.end()) {
      entry.overflow = overflow->second;
    }
    entry.key = std::move(tensor.key);
    entry.slot = std::move(tensor.name);
    entry.rule = tensor.rule;
    entry.recipe = std::move(tensor.recipe);
    if (tensor.range && plan.layout != Layout::kInline) {
      const DataRange& range = plan.ranges[*tensor.range];
      entry.file = plan.location(range.file);
      entry.offset = range.offset;
    }
    entry.length = tensor.nbytes;
    entry.data_type = tensor.data_type;
    entry.dims = std::move(tensor.dims);
    entry.packed = tensor.packed;
    saved.push_back(std::move(entry));
  }
  return saved;
}

// The size of the ranges that one model refers to.
std::uint64_t bytes_of_model(const SavePlan& plan, std::uint32_t model_index) {
  std::vector<bool> counted(plan.ranges.size());
  std::uint64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index == model_index && tensor.range && !counted[*tensor.range]) {
      counted[*tensor.range] = true;
      bytes += plan.ranges[*tensor.range].bytes;
    }
  }
  return bytes;
}

std::vector<LeftKey> reported_keys(const MappingKeys& keys, const Mapping& mapping) {
  std::vector<LeftKey> left;
  for (std::size_t key = 0; key < mapping.keys.size(); ++key) {
    const MappedKey& state = mapping.keys[key];
    if (state.verdict != KeyVerdict::kUsed) {
      const bool is_tied = state.verdict == KeyVerdict::kTied;
      left.push_back({keys.keys[key].name, state.verdict, state.in_unused_module,
                      is_tied ? keys.keys[state.tied_to].name : ""});
    }
  }
  return left;
}

std::vector<LeftName> reported_names(const Model& model, const Mapping& mapping,
                                     const std::vector<std::string>& by_option) {
  std::vector<LeftName> left = left_names(model.facts(), mapping);
  const NameSet kept(by_option.begin(), by_option.end());
  for (LeftName& name : left) {
    name.by_option = name.verdict == SlotVerdict::kKept && kept.contains(name.name);
  }
  // The list of the model already contains the missing slots.
  std::erase_if(left, [](const LeftName& name) { return name.verdict == SlotVerdict::kMissing; });
  for (std::string& name : names_left_open(model, mapping)) {
    left.push_back({std::move(name), SlotVerdict::kMissing});
  }
  return left;
}

SavedModel report_model(const SaveJob& job, std::uint32_t model_index, const Mapping& mapping) {
  const Model& model = job.models[model_index];
  SavedModel report;
  report.model = job.target.folder / job.names[model_index];
  report.manifest = manifest_location(
      {.models = job.names, .data_dir = job.plan.data_dir, .layout = job.plan.layout},
      job.names[model_index]);
  report.kept_by_option = kept_by_option(model.facts(), job.options.mapping);
  report.left = reported_names(model, mapping, report.kept_by_option);
  report.complete = report.slots_left().empty() && report.left_old().empty();
  report.key_prefix = mapping.key_prefix;
  report.bytes = bytes_of_model(job.plan, model_index);
  report.remarks = remarks_of(model);
  return report;
}

// Fills in the part of the report about the data files of a plan.
void report_data(const SavePlan& plan, SaveReport& report) {
  for (const std::size_t tensor : plan.oversized) {
    report.oversized.push_back(plan.tensors[tensor].name);
  }
  report.bytes = plan.bytes;
  for (std::size_t i = plan.written_ranges(); i < plan.ranges.size(); ++i) {
    report.linked_bytes += plan.ranges[i].bytes;
  }
}

// Adds each file that nodes of the model refer to (GraphFacts::side_files) and that is not in the
// folder.
void note_side_files(const Model& model, const fs::path& folder, SaveReport& report) {
  for (const std::string& file : model.facts().side_files) {
    if (folder.empty() || !is_there(folder, file)) {
      report.notes.push_back("the model's EPContext nodes need the file " + quote(file) +
                             " next to the model, and a save does not copy it: cp " +
                             quote((model.source_dir() / file).string()) + " " +
                             quote(folder.empty() ? "OUT_DIR" : folder.string()));
    }
  }
}

}  // namespace

void report_save(const MappingKeys& keys, std::span<const Mapping> mappings,
                 const WrittenSave& written, SaveJob& job) {
  SaveReport& report = job.report;
  report.folder = job.target.folder;
  report.keys = reported_keys(keys, mappings.front());
  report.unused_modules = mappings.front().unused_modules;
  report.notes.insert(report.notes.begin(), job.checkpoint->notes().begin(),
                      job.checkpoint->notes().end());
  report.overlaid = job.checkpoint->overlaid();
  report.derived = mappings.front().options.derived;
  report_data(job.plan, report);
  for (std::uint32_t i = 0; i < mappings.size(); ++i) {
    report.models.push_back(report_model(job, i, mappings[i]));
    report.complete = report.complete && report.models.back().complete;
    note_side_files(job.models[i], job.target.folder, report);
  }
  report.bytes_resumed = written.bytes_resumed;
  report_quantized(job, written.quantization_errors);
  for (std::uint32_t i = 0; i < mappings.size(); ++i) {
    report.models[i].tensors = saved_tensors(job.plan, written.overflows, i);
  }
}

std::vector<std::string> SavedModel::names_with(std::initializer_list<SlotVerdict> verdicts) const {
  return onnx_external::names_with(verdicts, left);
}

std::vector<std::string> SavedModel::inputs_left() const {
  return names_with({SlotVerdict::kUserInput, SlotVerdict::kUnconfirmed});
}

std::vector<std::string> SavedModel::initializers_kept() const {
  return names_with({SlotVerdict::kKept, SlotVerdict::kStale, SlotVerdict::kOld});
}

std::vector<std::string> SavedModel::slots_left() const {
  return names_with({SlotVerdict::kMissing});
}

std::vector<std::string> SavedModel::left_old() const {
  return names_with({SlotVerdict::kOld, SlotVerdict::kStale, SlotVerdict::kStaleConstant});
}

std::vector<std::string> SaveReport::keys_with(std::initializer_list<KeyVerdict> verdicts) const {
  return names_with(verdicts, keys);
}

std::vector<std::string> SaveReport::unmatched_keys() const {
  std::vector<std::string> names;
  for (const LeftKey& key : keys) {
    if (key.verdict != KeyVerdict::kTied) {
      names.push_back(key.name);
    }
  }
  return names;
}

std::vector<std::string> SaveReport::skipped_keys() const {
  return keys_with({KeyVerdict::kUnused, KeyVerdict::kAdapter});
}

void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report) {
  for (const std::string& file : files) {
    std::error_code ignored;
    const fs::path path = report.folder / file;
    const bool is_left = std::any_of(report.data_left_for.begin(), report.data_left_for.end(),
                                     [&](const auto& left) { return left.first == file; });
    if (!is_left) {
      report.notes.push_back(quote(file) + " (" + size_text(fs::file_size(path, ignored)) +
                             ") contains data of the replaced model, and was not removed because "
                             "another tool wrote it; if no other model needs it: rm " +
                             quote(path.string()));
    }
  }
}

}  // namespace onnx_external
