// The manifest of a written model: where it is, and whether it describes the model.
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
#include "verify/external_entry.h"
#include "verify/model_file.h"

namespace onnx_external {

struct FoundManifest {
  std::string location;  // relative to the model's folder
  std::string folder;    // "initializers/", or empty: the files stand beside the model
  Result<Manifest> manifest;
};

// True when it was written for this very model file.
[[nodiscard]] bool knows(const Manifest& manifest, const ModelFile& model);

// The manifest at `known`, where that is given. Else it is looked for beside the model and in
// the folders that external tensors lie in; the one that knows the model by its CRC comes first.
// Nothing when there is none.
[[nodiscard]] std::optional<FoundManifest> find_manifest(const ModelFile& model,
                                                         std::span<const ListedTensor> tensors,
                                                         const std::string& known = {});

// (graph, place, name) -> index into the list, which must outlive it; the first of twins.
using TensorKey = std::tuple<std::uint32_t, TensorPlace, std::string_view>;
using TensorIndex = std::map<TensorKey, std::size_t>;
[[nodiscard]] TensorIndex index_tensors(std::span<const ListedTensor> tensors);

// What a manifest says of each listed tensor; same index as the list.
struct ManifestFacts {
  std::vector<const ManifestTensor*> records;  // null: the manifest does not have it
  std::vector<Finding> unplaced;               // records of tensors that the model does not have
};
[[nodiscard]] ManifestFacts match_manifest(const Manifest& manifest, const std::string& location,
                                           std::size_t tensors, const TensorIndex& index);

// What contradicts between a record and the tensor: its file, range, type or dims; empty when
// nothing does. `entry` is null for an inline tensor.
[[nodiscard]] std::string contradiction(const ManifestTensor& record, const std::string& folder,
                                        const ListedTensor& tensor, const ExternalEntry* entry);

// The files that a model links to must have the sizes that the manifest recorded.
void check_linked_files(const std::filesystem::path& folder, std::span<const LinkedFile> files,
                        std::vector<Finding>& findings);

// Reads the files of recorded inputs that the manifest lists: missing ones, and ones with other
// bytes, become findings.
void check_test_data(const ModelFile& model, std::span<const ManifestFile> files,
                     std::vector<Finding>& findings);

}  // namespace onnx_external
