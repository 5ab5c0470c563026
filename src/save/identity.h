// Identifies models by their bytes, and finds the manifests that describe them. Because the data of
// a model may have any name, manifests are searched for next to the model and in all folders next
// to it.
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

// The size and CRC-32 of a model file, which identify the model in its manifest.
struct ModelIdentity {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

// Opens a regular file in a folder without following a link.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                                   const std::string& name);

// Opens the parent of a cut piece in a folder. Unlike open_plain(), it accepts a link in the cache
// of the Hugging Face Hub.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_parent(const Directory& folder,
                                                                    const std::string& name);
[[nodiscard]] std::optional<ModelIdentity> identify_parent(const Directory& folder,
                                                           const std::string& name);

// Returns the identity of a model. Fails with kNotFound if the file does not exist.
[[nodiscard]] Result<ModelIdentity> read_identity(const Directory& folder,
                                                  const std::string& model_name);
// Returns the identity of a model, or nullopt if there is no regular file of this name. A link does
// not count, because its target does not belong to the folder.
[[nodiscard]] Result<std::optional<ModelIdentity>> identity_in_place(const Directory& folder,
                                                                     const std::string& model_name);
// Returns the identity of a model, or nullopt if there is no regular file of this name, or if it
// cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// A manifest in which the files of tensors are locations in the output folder.
struct PlacedManifest {
  std::string location;
  Manifest manifest;
};

// Reads the manifest at `location`, which is NAME or FOLDER/NAME.
[[nodiscard]] Result<PlacedManifest> read_manifest(const Directory& out,
                                                   const std::string& location);

// Returns the manifests in the folder that describe this model. There are two if a save of an
// identical model was killed. Ignores files that are not manifests or that this user may not read.
// Other errors are returned, because it would otherwise be unknown which files belong to the model.
[[nodiscard]] Result<std::vector<PlacedManifest>> find_manifests(const Directory& out,
                                                                 const std::string& model_name,
                                                                 const ModelIdentity& model);

}  // namespace onnx_external
