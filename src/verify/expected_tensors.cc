#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "onnx_external/evidence.h"
#include "onnx_external/model.h"
#include "onnx_external/verify.h"
#include "verify/manifest_check.h"
#include "verify/model_file.h"

namespace onnx_external {
namespace {

bool names_no_option(const MappingOptions& options) {
  return options.match == Match::kAuto && options.unmatched == Unmatched::kStrict &&
         options.partial == Partial::kRefuse && !options.prefix && options.renames.empty() &&
         options.map.empty() && options.ties.empty() && options.inputs.empty() &&
         options.keep.empty() && options.ignore.empty();
}

// The model's manifest when it has one that can be read.
Result<std::optional<Manifest>> readable_manifest(const std::filesystem::path& model_path) {
  auto model = read_model_file(model_path);
  if (!model) {
    return fail(std::move(model).error());
  }
  const auto tensors = list_tensors(*model->proto);
  if (!tensors) {
    return fail(tensors.error());
  }
  auto found = find_manifest(*model, *tensors);
  if (!found || !found->manifest) {
    return std::optional<Manifest>();  // a damaged one is verification's to report
  }
  return std::optional<Manifest>(*std::move(found->manifest));
}

// Nothing when the checkpoint lacks a tensor that the manifest names: it is another one, or was
// opened in another way.
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
    // A record of another type says that the save converted: what it says is compared all the same.
    expected.push_back(
        {record.slot, record.graph, found->second, ExpectedBy::kManifest, Casts::kAllow});
    expected.back().recipe = record.recipe;
  }
  return expected;
}

Result<std::vector<ExpectedTensor>> mapped(const std::filesystem::path& model_path,
                                           const Checkpoint& checkpoint, const MappingKeys& keys,
                                           const MappingOptions& options) {
  auto model = Model::load(model_path);
  if (!model) {
    return fail(std::move(model).error());
  }
  auto mapping = map_tensors(model->facts(), keys, options, mapping_evidence(*model, checkpoint));
  if (!mapping) {
    return fail_in(model_path.string(), std::move(mapping).error());
  }
  std::vector<ExpectedTensor> expected;
  for (const MappedPair& pair : mapping->pairs) {
    const bool kept = pair.slot == Attachment::kNoSlot;
    const Slot* slot = kept ? nullptr : &model->facts().slots[pair.slot];
    expected.push_back({kept ? keys.keys[pair.key].name : slot->name, kept ? 0 : slot->graph,
                        pair.key, ExpectedBy::kMapping, options.casts});
    expected.back().recipe = pair.recipe;
  }
  return expected;
}

bool same_bytes(const MappingKey& a, const MappingKey& b) {
  return a.bytes_id && a.bytes_id == b.bytes_id;
}

// The manifest lies in the package that is being verified, so it only adds to what the mapping
// finds: the save may have had options that this verification does not have.
std::vector<ExpectedTensor> merged(std::vector<ExpectedTensor> expected, const MappingKeys& keys,
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
    const bool same_tensor = wanted.tensor == record.tensor ||
                             same_bytes(keys.keys[wanted.tensor], keys.keys[record.tensor]);
    if (!same_tensor || wanted.recipe != record.recipe) {
      wanted.disputed = record.tensor;
    }
  }
  return expected;
}

}  // namespace

Result<std::vector<ExpectedTensor>> expected_tensors(const std::filesystem::path& model_path,
                                                     const Checkpoint& checkpoint,
                                                     const MappingOptions& options) {
  std::optional<std::vector<ExpectedTensor>> records;
  if (names_no_option(options)) {
    auto manifest = readable_manifest(model_path);
    if (!manifest) {
      return fail(std::move(manifest).error());
    }
    records = *manifest ? recorded(**manifest, checkpoint) : std::nullopt;
  }
  auto keys = mapping_keys(checkpoint);
  if (!keys) {
    return fail(std::move(keys).error());
  }
  if (!records) {
    return mapped(model_path, checkpoint, *keys, options);
  }
  // What mapping cannot tell, the record adds; so an incomplete mapping is better than none.
  MappingOptions partial = options;
  partial.partial = Partial::kAllow;
  partial.unmatched = Unmatched::kSkip;
  auto expected = mapped(model_path, checkpoint, *keys, partial);
  return expected ? merged(*std::move(expected), *keys, *std::move(records)) : *std::move(records);
}

}  // namespace onnx_external
