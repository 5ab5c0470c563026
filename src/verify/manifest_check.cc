#include "verify/manifest_check.h"

#include <set>

#include "base/directory.h"
#include "base/file.h"
#include "base/read_back.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/tensor.h"
#include "save/file_names.h"

namespace onnx_external {
namespace {

// We write one manifest per model; other tools may use several folders.
constexpr std::size_t kMaxManifests = 16;

std::string_view location_of(const onnx::TensorProto& tensor) {
  for (const auto& pair : tensor.external_data()) {
    if (pair.key() == "location") {
      return pair.value();
    }
  }
  return {};
}

// Returns where the manifest for a data file would be; empty if this library would not write such a
// file.
std::string manifest_location(std::string_view data_file) {
  const std::size_t slash = data_file.rfind('/');
  if (slash != std::string_view::npos) {
    return std::string(data_file.substr(0, slash + 1)).append(kManifestName);
  }
  const auto stem = stem_of_data_file(data_file);
  return stem ? manifest_file_name(*stem) : std::string();
}

enum class NamedAfter : std::uint8_t { kModel, kOthers };

// Returns manifests next to the model: those named after it, because linked data does not lead to
// one, or those with other names, because a copy of a model has the manifest of the model.
std::vector<std::string> manifests_beside(const ModelFile& model, NamedAfter wanted) {
  const auto folder = Directory::open(model.folder);
  const auto entries = folder ? folder->entries() : fail(folder.error());
  std::vector<std::string> names;
  for (std::size_t i = 0; entries && i < entries->size() && names.size() < kMaxManifests; ++i) {
    const auto stem = stem_of_manifest_file((*entries)[i]);
    const bool is_own = stem && generation_of(*stem, data_stem(model.name));
    if (stem && is_own == (wanted == NamedAfter::kModel)) {
      names.push_back((*entries)[i]);
    }
  }
  return names;
}

// Returns where manifests could be: in graph order, then next to the model.
std::vector<std::string> manifest_locations(const ModelFile& model,
                                            std::span<const ListedTensor> tensors) {
  std::set<std::string> seen;
  std::vector<std::string> locations;
  for (const ListedTensor& tensor : tensors) {
    if (!is_external(*tensor.proto) || locations.size() == kMaxManifests) {
      continue;
    }
    std::string location = manifest_location(location_of(*tensor.proto));
    if (!location.empty() && seen.insert(location).second && check_relative_location(location)) {
      locations.push_back(std::move(location));
    }
  }
  for (std::string& name : manifests_beside(model, NamedAfter::kModel)) {
    if (seen.insert(name).second) {
      locations.push_back(std::move(name));
    }
  }
  return locations;
}

Result<Manifest> read_manifest(const SourceFile& file) {
  TRY_ASSIGN(auto text, read_file(file, kMaxManifestBytes));
  TRY_ASSIGN_IN(file.name(), auto manifest, parse_manifest(text));
  return manifest;
}

// A manifest of another name that knows the model.
std::optional<FoundManifest> find_manifest_of_copy(const ModelFile& model) {
  for (std::string& name : manifests_beside(model, NamedAfter::kOthers)) {
    const auto file = open_beneath(model.folder, name);
    auto manifest = file ? read_manifest(**file) : fail(file.error());
    if (manifest && knows(*manifest, model)) {
      return FoundManifest{std::move(name), "", std::move(manifest)};
    }
  }
  return std::nullopt;
}

}  // namespace

bool knows(const Manifest& manifest, const ModelFile& model) {
  return manifest.model_bytes == model.bytes && manifest.model_crc32 == model.crc32;
}

std::optional<FoundManifest> find_manifest(const ModelFile& model,
                                           std::span<const ListedTensor> tensors,
                                           const std::string& known) {
  std::optional<FoundManifest> first;
  for (std::string& location :
       known.empty() ? manifest_locations(model, tensors) : std::vector<std::string>{known}) {
    const std::size_t slash = location.rfind('/');
    std::string folder = slash == std::string::npos ? "" : location.substr(0, slash + 1);
    FoundManifest found{std::move(location), std::move(folder), Manifest{}};
    auto file = open_beneath(model.folder, found.location);
    if (!file && file.error().code == ErrorCode::kNotFound && known.empty()) {
      continue;
    }
    found.manifest = file ? read_manifest(**file) : fail(std::move(file).error());
    if (found.manifest && knows(*found.manifest, model)) {
      return found;
    }
    if (!first) {
      first = std::move(found);
    }
  }
  return first || !known.empty() ? std::move(first) : find_manifest_of_copy(model);
}

TensorIndex index_tensors(std::span<const ListedTensor> tensors) {
  TensorIndex index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index.try_emplace({tensors[i].graph, tensors[i].place, tensors[i].name}, i);
  }
  return index;
}

ManifestFacts match_manifest(const Manifest& manifest, const std::string& location,
                             std::size_t tensors, const TensorIndex& index) {
  ManifestFacts facts;
  facts.records.resize(tensors, nullptr);
  for (const ManifestTensor& record : manifest.tensors) {
    const auto found = index.find({record.graph, record.place, record.slot});
    const bool duplicate = found != index.end() && facts.records[found->second] != nullptr;
    if (found != index.end() && !duplicate) {
      facts.records[found->second] = &record;
    } else {
      facts.unplaced.push_back(
          {FindingCode::kManifest, name_in_finding(record.slot), name_in_finding(location),
           duplicate ? "the manifest lists it twice"
                     : "it is in the manifest, but the model has no such initializer"});
    }
  }
  return facts;
}

void check_linked_files(const std::filesystem::path& folder, std::span<const LinkedFile> files,
                        std::vector<Finding>& findings) {
  for (const LinkedFile& record : files) {
    const auto file = open_beneath(folder, record.file);
    if (file && (*file)->size() != record.bytes) {  // its tensors report a missing file
      findings.push_back({FindingCode::kWrongLength, "", name_in_finding(record.file),
                          "the model was linked to a file with " + std::to_string(record.bytes) +
                              " bytes, but this file has " + std::to_string((*file)->size())});
    }
  }
}

std::string contradiction(const ManifestTensor& record, const std::string& folder,
                          const ListedTensor& tensor, const ExternalEntry* entry) {
  if (record.data_type != tensor.proto->data_type() || record.dims != dims_of(*tensor.proto)) {
    return "its element type or dims differ from the manifest";
  }
  if (record.file.empty() != (entry == nullptr)) {
    return record.file.empty() ? "according to the manifest, it is inside the model"
                               : "according to the manifest, it is in a file";
  }
  if (entry == nullptr) {
    return {};
  }
  const std::string location = folder + record.file;
  if (location != entry->location || record.offset != entry->offset ||
      record.length != entry->length) {
    return "according to the manifest, it is in " + quote(location) + " at " +
           std::to_string(record.offset) + ", " + std::to_string(record.length) + " bytes";
  }
  return {};
}

}  // namespace onnx_external
