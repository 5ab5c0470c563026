#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "mapping/graph_parts.h"
#include "mapping/map_steps.h"
#include "onnx/graph_facts.h"
#include "onnx_external/evidence.h"
#include "onnx_external/model.h"
#include "onnx_external/verify.h"
#include "save/planned_bytes.h"
#include "verify/manifest_check.h"
#include "verify/model_file.h"

namespace onnx_external {
namespace {

// Returns whether the options choose pairs; other options only allow omissions.
bool chooses_pairs(const MappingOptions& options) {
  return options.prefix || !options.renames.empty() || !options.derived.empty() ||
         !options.map.empty();
}

// Returns the model's manifest, if it has one that can be read.
Result<std::optional<Manifest>> readable_manifest(const std::filesystem::path& model_path) {
  TRY_ASSIGN(auto model, read_model_file(model_path));
  TRY_ASSIGN(const auto tensors, list_tensors(*model.proto));
  auto found = find_manifest(model, tensors);
  // Verification reports a damaged one.
  return found && found->manifest ? std::optional(*std::move(found->manifest)) : std::nullopt;
}

// nullopt if the checkpoint lacks a tensor that the manifest names (it is another checkpoint, or
// was opened differently), or if the manifest names none because the model was saved without a
// checkpoint.
std::optional<std::vector<ExpectedTensor>> recorded(const Manifest& manifest,
                                                    const Checkpoint& checkpoint) {
  NameMap<std::size_t> keys;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    keys.emplace(checkpoint.tensors()[i].name, i);
  }
  std::vector<ExpectedTensor> expected;
  for (const ManifestTensor& record : manifest.tensors) {
    if (record.key.empty()) {
      continue;  // copied from the graph's own data
    }
    const auto found = keys.find(record.key);
    if (found == keys.end()) {
      return std::nullopt;
    }
    expected.push_back(
        {record.slot, record.graph, found->second, ExpectedBy::kManifest, Casts::kRefuse});
    expected.back().recipe = record.recipe;
    expected.back().packed = record.packed;
  }
  return expected.empty() ? std::nullopt : std::optional(std::move(expected));
}

// Returns the error if a checkpoint cannot be compared with a quantized model in which recorded()
// found no keys. A mapping would only find nodes that read codes.
Status check_quantized_source(const Manifest& manifest) {
  std::string key;
  bool is_quantized = false;
  for (const ManifestTensor& record : manifest.tensors) {
    if (record.packed) {
      is_quantized = true;
      key = key.empty() ? record.key : key;
    }
  }
  if (!is_quantized) {
    return {};
  }
  if (key.empty()) {
    return fail(ErrorCode::kMismatch,
                "its codes were computed from the weights in the float model, so they cannot be "
                "compared with a checkpoint; to compare every byte with the manifest, verify the "
                "model without a checkpoint");
  }
  return fail(ErrorCode::kMismatch, "its codes were computed from a checkpoint with the key " +
                                        quote(key) +
                                        " and others, some of which this checkpoint lacks; pass "
                                        "the checkpoint that the model was quantized from");
}

// The two sides of the mapping.
struct Given {
  Model model;
  const Checkpoint& checkpoint;
  MappingKeys keys;
  std::string name = {};  // of the model
  OthersOfSet others = {};

  [[nodiscard]] Result<Mapping> map(const MappingOptions& options) const {
    const GraphToMap graph{name, &model.facts(), mapping_evidence(model, checkpoint)};
    TRY_ASSIGN(auto mappings, map_graphs_beside({&graph, 1}, keys, options, others));
    return std::move(mappings.front());
  }
};

Result<Given> load(const std::filesystem::path& model_path, const Checkpoint& checkpoint) {
  TRY_ASSIGN(auto keys, mapping_keys(checkpoint));
  TRY_ASSIGN(auto model, Model::load(model_path));
  return Given{std::move(model), checkpoint, std::move(keys), model_path.filename().string()};
}

std::vector<ExpectedTensor> expected_by(const Mapping& mapping, const Given& given, Casts casts) {
  std::vector<ExpectedTensor> expected;
  for (const MappedPair& pair : mapping.pairs) {
    const bool kept = pair.slot == kNoSlot;
    const Slot* slot = kept ? nullptr : &given.model.facts().slots[pair.slot];
    // Without definitions in the options, derived keys are those of the manifest.
    const bool by_manifest =
        mapping.options.derived.empty() && !given.keys.keys[pair.key].made_of.empty();
    expected.push_back({kept ? given.keys.keys[pair.key].name : slot->name, kept ? 0 : slot->graph,
                        pair.key, by_manifest ? ExpectedBy::kManifest : ExpectedBy::kMapping,
                        casts});
    expected.back().recipe = pair.recipe;
  }
  return expected;
}

std::vector<std::string> inputs_of(const Model& model) {
  std::vector<std::string> names;
  for (const Slot& slot : model.facts().slots) {
    if (slot.kind == SlotKind::kGraphInput) {
      names.push_back(slot.name);
    }
  }
  return names;
}

Result<std::vector<ExpectedTensor>> expected_by_options(const Given& given,
                                                        const MappingOptions& options) {
  TRY_ASSIGN(auto mapping, given.map(options));
  return expected_by(mapping, given, options.casts);
}

// The prefix that the save removed from its keys. Where it removed and added none, the keys' own
// names are meant.
std::optional<std::string> prefix_of_save(const Manifest& manifest) {
  std::optional<std::string> prefix = manifest.options.prefix;
  if (prefix) {
    return prefix;
  }
  prefix = "";
  for (const ManifestTensor& record : manifest.tensors) {
    if (record.rule == rule_name(Rule::kPrefixRemoved) && record.key.ends_with(record.slot)) {
      return record.key.substr(0, record.key.size() - record.slot.size());
    }
    if (record.rule == rule_name(Rule::kPrefixRemoved) ||
        record.rule == rule_name(Rule::kPrefixAdded) || record.rule == rule_name(Rule::kSuffix)) {
      prefix.reset();
    }
  }
  return prefix;
}

void append(std::vector<std::string>& names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
}

// The options of the save combined with the given ones, plus the pairs that it found, because the
// written model no longer shows everything that the original graph did, above all about inputs.
MappingOptions options_of_save(const Manifest& manifest, const MappingOptions& given) {
  MappingOptions options = manifest.options;
  options.casts = given.casts;
  append(options.inputs, given.inputs);
  append(options.keep, given.keep);
  append(options.ignore, given.ignore);
  options.partial = given.partial == Partial::kAllow ? given.partial : options.partial;
  options.unmatched = given.unmatched == Unmatched::kStrict ? options.unmatched : given.unmatched;
  options.prefix = prefix_of_save(manifest);
  for (const ManifestTensor& record : manifest.tensors) {
    if (record.packed) {
      options.keep.push_back(record.slot);  // no key fills it as it is
      continue;
    }
    options.casts = ends_with_cast(record.recipe) ? Casts::kAllow : options.casts;
    if (!record.key.empty() && record.place == TensorPlace::kInitializer && !record.packed &&
        record.rule != rule_name(Rule::kKept)) {
      options.map.push_back({record.slot, record.key, record.recipe});
    }
  }
  return options;
}

// Returns whether both produce the same bytes, ignoring conversions, which the mapping does not
// decide. A tied weight may be stored twice: such tensors are read.
Result<bool> same_bytes(const ExpectedTensor& wanted, const ExpectedTensor& record,
                        const Given& given) {
  BytesIds ids(given.checkpoint.storages());
  const auto id_of = [&](const ExpectedTensor& tensor) {
    const auto view = apply_recipe(tensor.recipe, given.checkpoint.tensors()[tensor.tensor]);
    return view ? ids.id_of(*view) : std::nullopt;
  };
  const auto id = id_of(wanted);
  const bool are_alike = with_cast(wanted.recipe, false) == with_cast(record.recipe, false);
  if (id ? id == id_of(record) : are_alike && wanted.tensor == record.tensor) {
    return true;
  }
  return are_alike && wanted.tensor != record.tensor
             ? mapping_evidence(given.model, given.checkpoint)
                   .same_bytes(static_cast<std::uint32_t>(wanted.tensor),
                               static_cast<std::uint32_t>(record.tensor))
             : Result<bool>(false);
}

// The manifest is in the package that is being verified, so it only adds to the result of the
// mapping: the save may have had options that this verification does not have.
Result<std::vector<ExpectedTensor>> merged(std::vector<ExpectedTensor> expected, const Given& given,
                                           std::vector<ExpectedTensor> records) {
  std::map<std::pair<std::uint32_t, std::string>, std::size_t> places;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    places.emplace(std::pair(expected[i].graph, expected[i].initializer), i);
  }
  for (ExpectedTensor& record : records) {
    const auto place = places.find({record.graph, record.initializer});
    if (place == places.end()) {
      expected.push_back(std::move(record));
      continue;
    }
    ExpectedTensor& wanted = expected[place->second];
    TRY_ASSIGN(const bool are_same, same_bytes(wanted, record, given));
    if (!are_same) {
      wanted.disputed = record.tensor;
    }
    wanted.recipe = with_cast(std::move(wanted.recipe), ends_with_cast(record.recipe));
  }
  return expected;
}

void note_used(std::uint32_t key, std::vector<bool>& is_noted, Given& given) {
  if (is_noted[key]) {
    return;
  }
  is_noted[key] = true;
  given.others.used_keys.push_back(given.keys.keys[key].name);
  for (const std::uint32_t part : given.keys.keys[key].made_of) {
    note_used(part, is_noted, given);  // not deeper than kMaxDerivedDepth
  }
}

// No slot of the written model takes the keys that were quantized, but they are used, and so are
// those of which they are made.
void note_packed_keys(const Manifest& manifest, Given& given) {
  NameSet packed;
  for (const ManifestTensor& record : manifest.tensors) {
    if (record.packed && !record.key.empty()) {
      given.others.exist = true;
      packed.insert(record.key);
    }
  }
  std::vector<bool> is_noted(given.keys.keys.size());
  for (std::uint32_t key = 0; key < given.keys.keys.size(); ++key) {
    if (packed.contains(given.keys.keys[key].name)) {
      note_used(key, is_noted, given);
    }
  }
}

// Returns whether only quantized keys came from the checkpoint.
bool all_are_packed(const std::vector<ExpectedTensor>& records) {
  return std::all_of(records.begin(), records.end(),
                     [](const ExpectedTensor& record) { return record.packed.has_value(); });
}

bool are_all_used(const Given& given) {
  const NameSet used(given.others.used_keys.begin(), given.others.used_keys.end());
  return std::all_of(given.keys.keys.begin(), given.keys.keys.end(),
                     [&](const auto& key) { return used.contains(key.name); });
}

// The pairs that mapping finds without the manifest's, plus those that the manifest adds. If they
// agree, the save's own mapping must succeed again; otherwise the checkpoint has weights that the
// model lacks, or lacks some of the model's.
Result<std::vector<ExpectedTensor>> expected_by_record(Given& given, const Manifest& manifest,
                                                       std::vector<ExpectedTensor> records,
                                                       const MappingOptions& requested) {
  MappingOptions options = options_of_save(manifest, requested);
  if (options.inputs.empty()) {
    options.inputs = inputs_of(given.model);  // what the save left open it left to the caller
  }
  MappingOptions partial;
  note_packed_keys(manifest, given);
  const bool is_packed = all_are_packed(records);
  if (is_packed && are_all_used(given)) {
    return records;  // there is nothing to map
  }
  partial.casts = options.casts;
  partial.keep = options.keep;
  partial.partial = Partial::kAllow;
  partial.unmatched = Unmatched::kSkip;
  const auto mapping = given.map(partial);
  const bool fits_nothing = !mapping && kind_of(mapping.error().details.get()) == ErrorKind::kSlots;
  if (fits_nothing && is_packed && !records.empty() && options.unmatched != Unmatched::kStrict) {
    return records;  // the remaining keys need not be used
  }
  std::vector<ExpectedTensor> expected = std::move(records);
  if (mapping) {
    TRY_ASSIGN(expected,
               merged(expected_by(*mapping, given, requested.casts), given, std::move(expected)));
  }
  const bool is_disputed = std::any_of(expected.begin(), expected.end(),
                                       [](const auto& tensor) { return tensor.disputed; });
  if (is_disputed) {
    return expected;
  }
  TRY(given.map(options));
  return expected;
}

// Returns the keys that another model of the set uses; nullopt if the model is not the one that was
// saved with this one, or does not fit the checkpoint.
Result<std::optional<std::vector<std::string>>> keys_of_member(const std::filesystem::path& path,
                                                               const SetMember& member,
                                                               const Checkpoint& checkpoint,
                                                               const MappingKeys& keys,
                                                               const MappingOptions& requested) {
  const auto file = read_model_file(path);
  if (!file || file->bytes != member.bytes || file->crc32 != member.crc32) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto manifest, readable_manifest(path));
  TRY_ASSIGN(const auto model, Model::load(path));
  MappingOptions options = manifest ? options_of_save(*manifest, {}) : MappingOptions();
  options.casts = requested.casts == Casts::kAllow ? requested.casts : options.casts;
  options.partial = Partial::kAllow;
  options.unmatched = Unmatched::kSkip;
  const auto mapping =
      map_tensors(model.facts(), keys, options, mapping_evidence(model, checkpoint));
  if (!mapping) {
    return std::nullopt;
  }
  std::vector<std::string> used;
  for (const MappedPair& pair : mapping->pairs) {
    used.push_back(keys.keys[pair.key].name);
  }
  return used;
}

// A model of a set is judged with the others, whose keys are noted in `given`. Without them it is
// not known which keys are theirs.
Result<MappingOptions> with_set(const std::filesystem::path& model_path,
                                const std::optional<Manifest>& manifest, MappingOptions options,
                                Given& given) {
  given.others.exist = manifest && manifest->set.size() > 1;
  for (std::size_t i = 0; manifest && i < manifest->set.size(); ++i) {
    const SetMember& member = manifest->set[i];
    if (member.file == manifest->model_file) {
      continue;
    }
    TRY_ASSIGN(const auto used, keys_of_member(model_path.parent_path() / member.file, member,
                                               given.checkpoint, given.keys, options));
    if (used) {
      append(given.others.used_keys, *used);
    } else if (options.unmatched == Unmatched::kStrict) {
      options.unmatched = Unmatched::kSkip;
    }
  }
  return options;
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(
    const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
    std::span<const std::uint32_t> range_crcs,
    const std::map<std::size_t, std::uint32_t>& inline_crcs, std::uint32_t model_index) {
  std::vector<ExpectedTensor> expected;
  expected.reserve(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    if (tensor.source != TensorSource::kCheckpoint || tensor.model_index != model_index) {
      continue;
    }
    ExpectedTensor& wanted = expected.emplace_back();
    wanted.initializer = tensor.name;
    if (tensor.existing_index) {
      const ExternalTensor& given = model.external_tensors()[*tensor.existing_index];
      wanted.graph = given.graph;
      wanted.place = given.place;
      wanted.by = ExpectedBy::kModel;
    } else {
      wanted.graph = tensor.slot == kNoSlot ? 0 : model.facts().slots[tensor.slot].graph;
    }
    wanted.tensor = tensor.source_index;
    wanted.casts = tensor.cast_to ? Casts::kAllow : Casts::kRefuse;
    wanted.recipe = tensor.recipe;
    wanted.packed = tensor.packed;
    const StorageKind kind = kind_of_source(checkpoint, tensor);
    const bool is_rearranged =
        tensor.packed || (kind == StorageKind::kFile && !planned_range(checkpoint, tensor));
    if (tensor.range && *tensor.range < range_crcs.size() &&
        (is_rearranged || kind == StorageKind::kMade)) {
      wanted.written_crc = range_crcs[*tensor.range];
    }
    const auto inline_crc = inline_crcs.find(i);
    if (kind == StorageKind::kMade && inline_crc != inline_crcs.end()) {
      wanted.written_crc = inline_crc->second;
    }
  }
  return expected;
}

Status add_derived_tensors_of(const std::filesystem::path& model_path,
                              const MappingOptions& options, Checkpoint& checkpoint,
                              std::uint64_t max_expand) {
  if (!CheckpointAccess::contents(checkpoint).all.stored.empty()) {
    TRY_ASSIGN(const auto model, Model::load(model_path));
    list_parts_for(model.facts(), checkpoint);
  }
  if (chooses_pairs(options)) {
    return add_derived_tensors(checkpoint, options.derived, max_expand);
  }
  TRY_ASSIGN(const auto manifest, readable_manifest(model_path));
  Status added =
      manifest ? add_derived_tensors(checkpoint, manifest->options.derived, max_expand) : Status();
  const bool is_other = !added && (added.error().code == ErrorCode::kNotFound ||
                                   added.error().code == ErrorCode::kAmbiguous ||
                                   added.error().code == ErrorCode::kMismatch);
  return is_other ? Status() : added;  // of another checkpoint: mapping says what is missing
}

Result<std::vector<ExpectedTensor>> expected_tensors(const std::filesystem::path& model_path,
                                                     const Checkpoint& checkpoint,
                                                     const MappingOptions& options) {
  TRY_ASSIGN(const auto manifest, readable_manifest(model_path));
  TRY_ASSIGN(auto given, load(model_path, checkpoint));
  const auto requested = with_set(
      model_path, manifest, options_for_model(options, model_path.filename().string()), given);
  if (!requested) {
    return fail(requested.error());
  }
  const bool is_by_manifest = manifest && !chooses_pairs(*requested);
  auto records = is_by_manifest ? recorded(*manifest, checkpoint) : std::nullopt;
  if (is_by_manifest && !records) {
    TRY_IN(model_path.string(), check_quantized_source(*manifest));
  }
  auto expected = records ? expected_by_record(given, *manifest, *std::move(records), *requested)
                          : expected_by_options(given, *requested);
  return expected ? std::move(expected) : fail_in(model_path.string(), std::move(expected).error());
}

}  // namespace onnx_external
