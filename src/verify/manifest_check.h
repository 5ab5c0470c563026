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

// Finds the manifest of a model. If `known` is not empty, it is the location of the manifest.
// Otherwise searches next to the model and in the folders of the external tensors, and prefers a
// manifest with the CRC of the model. Returns nullopt if there is no manifest.
[[nodiscard]] std::optional<FoundManifest> find_manifest(const ModelFile& model,
                                                         std::span<const ListedTensor> tensors,
                                                         const std::string& known = {});

// Returns a map from (graph, place, name) to an index into `tensors`, which must outlive the map.
// For duplicate names, the index is that of the first tensor.
using TensorKey = std::tuple<std::uint32_t, TensorPlace, std::string_view>;
using TensorIndex = std::map<TensorKey, std::size_t>;
[[nodiscard]] TensorIndex index_tensors(std::span<const ListedTensor> tensors);

// The records of a manifest, matched with the tensors of a model.
struct ManifestFacts {
  // The record of each tensor, with the same indices as the list of tensors; null if there is no
  // record.
  std::vector<const ManifestTensor*> records;
  std::vector<Finding> unplaced;  // findings for records of tensors that the model does not have
};
[[nodiscard]] ManifestFacts match_manifest(const Manifest& manifest, const std::string& location,
                                           std::size_t tensors, const TensorIndex& index);

// Describes how a record contradicts a tensor in file, range, type or dims. Returns "" if it does
// not. `entry` is null for an inline tensor.
[[nodiscard]] std::string contradiction(const ManifestTensor& record, const std::string& folder,
                                        const ListedTensor& tensor, const ExternalEntry* entry);

// Adds a finding for each file of a linked model whose size differs from the recorded size.
void check_linked_files(const std::filesystem::path& folder, std::span<const LinkedFile> files,
                        std::vector<Finding>& findings);

}  // namespace onnx_external
