// Finds and removes what saves have left in an output folder: generations of data, each with the
// manifest that knows its model. No function here follows a link.
//
// A model may have been saved with another name of the data folder than this save uses. Only the
// manifest inside identifies such a folder, so its files must also have the recorded sizes. Files
// beside the model that were saved under another name (PlanOptions::data_name) are listed in the
// manifest beside it, and must have the recorded sizes and bytes.
//
// A generation is a folder ("initializers.1") with its manifest in it, or files beside the model
// ("model.1.data", "model.1-00001-of-00002.data", ...) with theirs ("model.1.manifest.json"). Each
// model of a set has its manifest beside it, whatever the layout. The data files of a set are in
// one folder or named after it: "initializers.1.data", "initializers.1-00001-of-00002.data".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "base/name_map.h"
#include "save/manifest.h"
#include "save/other_models.h"

namespace onnx_external {

// The names that generations of a model's data have: folders called `folder` or "<folder>.N", and
// files beside the model that are named after it or after `data`.
struct GenerationNames {
  std::string model;      // "model.onnx"
  std::string folder;     // "initializers"
  std::string data = {};  // PlanOptions::data_name
};

// Locations relative to the output folder.
using FileSet = OwnedNameSet;

// The N of the generation that a data file at `location` belongs to; nothing when no save of this
// model can have written it there.
[[nodiscard]] std::optional<std::uint64_t> generation_of_location(const GenerationNames& names,
                                                                  std::string_view location);

// The largest N among `entries`, names in an output folder; nothing when no entry is data.
[[nodiscard]] std::optional<std::uint64_t> newest_generation(const GenerationNames& names,
                                                             std::span<const std::string> entries);

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
// Nothing when there is no such regular file. A link counts as none, because its target does not
// belong to the folder.
[[nodiscard]] Result<std::optional<ModelIdentity>> identity_in_place(const Directory& folder,
                                                                     const std::string& model_name);
// Nothing when there is no such regular file, or it cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// The manifest of the model that is in place; its files are locations, wherever the manifest
// stands. kNotFound when there is none, or no such model. After any other error it is unknown what
// belongs to the model, so nothing that may be its own may be removed.
[[nodiscard]] Result<Manifest> current_manifest(const Directory& out, const GenerationNames& names);

// Whether there is such a manifest, judged by the beginnings of manifests only; false when that is
// not known.
[[nodiscard]] bool has_manifest(const Directory& out, const GenerationNames& names);

// The files that the model in place refers to: taken from its manifest, or from the model if it has
// none. An empty set when there is no model; nothing when it cannot be read.
[[nodiscard]] std::optional<FileSet> current_files(const Directory& out,
                                                   const GenerationNames& names,
                                                   const std::optional<ModelIdentity>& current);

// Saving a model that links or has no data twice gives the same file, so that two manifests may
// describe it. Removes all manifests that describe this model with the same data files, except the
// one of `newest` (an entry of `out`), or else the one of the last generation. False when something
// could not be read or removed.
[[nodiscard]] bool remove_duplicate_manifests(const Directory& out, const GenerationNames& names,
                                              const ModelIdentity& model,
                                              const std::string& newest);

// The result of removing a replaced model's data.
struct RemovedData {
  bool all_gone = false;  // false when something could not be read or removed
  // Files that stay, by rising name, each with a model of the folder that refers to it.
  std::vector<std::pair<std::string, std::string>> left_for;
};

// Removes the data of a model, as the manifests of all generations in `out` list it: first the
// files that are not linked, then the manifest (so that a killed removal can be finished), then
// folders that are empty. Whatever a manifest says, a file is removed only if a save of this model
// can have written it: it is of no later generation than the manifest, and no other model's
// manifest stands in its folder. In folders of other names, and beside the model under another
// name, it must also have the recorded size and, if the manifest is not in its folder of that name,
// the recorded bytes. A file that cannot be removed stays; the new model is complete without the
// removal. `in_use`: current_files(). Files in `others` stay, and so does the manifest that lists
// them, unless each of these models has a manifest of its own: a copy of the model is verified by
// it.
RemovedData remove_data_of(const Directory& out, const GenerationNames& names,
                           const ModelIdentity& model, const FileSet& in_use,
                           const FilesInUse& others);

}  // namespace onnx_external
