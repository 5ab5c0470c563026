// Finds the manifest of a written model, and checks whether it describes the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "verify/findings.h"
#include "verify/model_file.h"

namespace onnx_external {

struct FoundManifest {
  std::string location;  // relative to the model's folder
  std::string folder;    // "initializers/", or empty if the files are next to the model
  Result<Manifest> manifest;
};

// Returns whether the manifest was written for exactly this model file.
[[nodiscard]] bool knows(const Manifest& manifest, const ModelFile& model);

// Returns the manifest at `known`, unless that is empty. Otherwise searches next to the model and
// in the folders of the external tensors, and prefers a manifest with the model's CRC. Nullopt if
// there is none.
[[nodiscard]] std::optional<FoundManifest> find_manifest(const ModelFile& model,
                                                         std::span<const ListedTensor> tensors,
                                                         const std::string& known = {});

// Maps (graph, place, name) to an index into the list, which must outlive the map; for duplicates,
// to the first.
using TensorKey = std::tuple<std::uint32_t, TensorPlace, std::string_view>;
using TensorIndex = std::map<TensorKey, std::size_t>;
[[nodiscard]] TensorIndex index_tensors(std::span<const ListedTensor> tensors);

// The manifest's record for each listed tensor.
struct ManifestFacts {
  // Same indices as the list; null if there is no record.
  std::vector<const ManifestTensor*> records;
  std::vector<Finding> unplaced;  // findings for records of tensors that the model does not have
};
[[nodiscard]] ManifestFacts match_manifest(const Manifest& manifest, const std::string& location,
                                           std::size_t tensors, const TensorIndex& index);

// Describes how a record contradicts the tensor (in file, range, type or dims); empty if it does
// not. `entry` is null for an inline tensor.
[[nodiscard]] std::string contradiction(const ManifestTensor& record, const std::string& folder,
                                        const ListedTensor& tensor, const ExternalEntry* entry);

// Reports the files to which a linked model refers and whose size is not the recorded one.
void check_linked_files(const std::filesystem::path& folder, std::span<const LinkedFile> files,
                        std::vector<Finding>& findings);

}  // namespace onnx_external
