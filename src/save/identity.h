// Identifies models by their bytes, and finds the manifests that describe them. Because the data of
// a model may have been saved under any name, the whole output folder is searched for manifests:
// next to the model, and in the folders next to it.
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

// The identity of a model, as its manifest records it.
struct ModelIdentity {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

// Opens a regular file in a folder, never through a link.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                                   const std::string& name);

// Does the same for the parent of a cut piece, which may also be a link in the Hub's cache.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_parent(const Directory& folder,
                                                                    const std::string& name);
[[nodiscard]] std::optional<ModelIdentity> identify_parent(const Directory& folder,
                                                           const std::string& name);

// kNotFound if there is no such file.
[[nodiscard]] Result<ModelIdentity> read_identity(const Directory& folder,
                                                  const std::string& model_name);
// Returns nullopt if there is no such regular file. A link does not count, because its target does
// not belong to the folder.
[[nodiscard]] Result<std::optional<ModelIdentity>> identity_in_place(const Directory& folder,
                                                                     const std::string& model_name);
// Returns nullopt if there is no such regular file, or it cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// A manifest in which the files of the tensors are stated as locations in the output folder.
struct PlacedManifest {
  std::string location;
  Manifest manifest;
};

// Reads the manifest at `location`: NAME or FOLDER/NAME.
[[nodiscard]] Result<PlacedManifest> read_manifest(const Directory& out,
                                                   const std::string& location);

// Returns the manifests in the folder that describe this model. There are two if a save of an
// identical model was killed. Ignores files that are not manifests or that this user may not read;
// other errors are returned, because it is then not known which files belong to the model.
[[nodiscard]] Result<std::vector<PlacedManifest>> find_manifests(const Directory& out,
                                                                 const std::string& model_name,
                                                                 const ModelIdentity& model);

}  // namespace onnx_external
