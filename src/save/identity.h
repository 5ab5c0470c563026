// Identifies models by their bytes, and finds the manifests in their folder that describe them. A
// model may have been saved under any name of its data, so manifests are searched everywhere in
// the folder: beside the model, and in the folders beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "save/manifest.h"

namespace onnx_external {

// Identifies a model in its manifest.
struct ModelIdentity {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

// Opens a regular file of a folder, never through a link.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                                   const std::string& name);

// The same for the parent of a piece, which may also be a link of the Hub's cache.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_parent(const Directory& folder,
                                                                    const std::string& name);
[[nodiscard]] std::optional<ModelIdentity> identify_parent(const Directory& folder,
                                                           const std::string& name);

// kNotFound when there is no such file.
[[nodiscard]] Result<ModelIdentity> read_identity(const Directory& folder,
                                                  const std::string& model_name);
// Returns nullopt if there is no such regular file. A link does not count, because its target does
// not belong to the folder.
[[nodiscard]] Result<std::optional<ModelIdentity>> identity_in_place(const Directory& folder,
                                                                     const std::string& model_name);
// Returns nullopt if there is no such regular file, or it cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// A manifest with the files of its tensors as locations.
struct PlacedManifest {
  std::string location;
  Manifest manifest;
};

// Reads the manifest at this location: NAME or FOLDER/NAME.
[[nodiscard]] Result<PlacedManifest> read_manifest(const Directory& out,
                                                   const std::string& location);

// Returns the manifests of the folder that describe this model: a save of an equal model that was
// killed leaves two. Ignores files that are not manifests or that this user may not read; other
// errors are returned, because the files of the model are then unknown.
[[nodiscard]] Result<std::vector<PlacedManifest>> find_manifests(const Directory& out,
                                                                 const std::string& model_name,
                                                                 const ModelIdentity& model);

}  // namespace onnx_external
