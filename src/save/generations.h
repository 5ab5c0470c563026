// What saves have left in an output folder: generations of data, each with the manifest that knows
// its model, and recorded inputs. Never through a link.
//
// A model may have been saved with another data folder's name than this save has. Its folders are
// known by the manifest in them alone, so what they hold must also be as large as that says.
//
// A generation is a folder ("initializers.1") with its manifest in it, or files beside the model
// ("model.1.data", "model.1-00001-of-00002.data", ...) with theirs ("model.1.manifest.json"). A
// model that kept files of the one before (SavePlan::kept) has data in several generations, and its
// manifest beside it, whatever its layout.
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
// files that start with the model's stem.
struct GenerationNames {
  std::string model;   // "model.onnx"
  std::string folder;  // "initializers"
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

// The entry that a data file or manifest beside the model would not be allowed to meet in a first
// save; nothing when there is none.
[[nodiscard]] std::optional<std::string> first_generation_file(
    const GenerationNames& names, std::span<const std::string> entries);

// By which a manifest knows its model.
struct ModelIdentity {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

// A regular file of a folder, never through a link.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                                   const std::string& name);

// kNotFound when there is no such file.
[[nodiscard]] Result<ModelIdentity> read_identity(const Directory& folder,
                                                  const std::string& model_name);
// Nothing when there is no such regular file, or it cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// The manifest of the model that is in place; its files are locations, wherever it stands.
// kNotFound when there is none, or no such model; else it cannot be told now, and nothing that may
// be its own may go.
[[nodiscard]] Result<Manifest> current_manifest(const Directory& out, const GenerationNames& names);

// True for a folder that holds nothing but files of recorded inputs.
[[nodiscard]] bool holds_only_inputs(const Directory& folder);

// True when the file has the length and the CRC-32 of the record.
[[nodiscard]] bool is_as_recorded(const Directory& folder, const std::string& name,
                                  const ManifestFile& record);

// The files that the model in place refers to, test data too: by its manifest, else by itself. None
// when there is no model; nothing when that cannot be told.
[[nodiscard]] std::optional<FileSet> current_files(const Directory& out,
                                                   const GenerationNames& names,
                                                   const std::optional<ModelIdentity>& current);

// The entries of `out` that hold the data which manifests of generations say belongs to the model,
// and these manifests. Not the data of other generations that it keeps.
[[nodiscard]] std::set<std::string> entries_of(const Directory& out, const GenerationNames& names,
                                               const ModelIdentity& model);

// Removes manifests that know this model and say that its data is in the same files, but for that
// of `newest`, an entry of `out`, or else of the last generation: a model that links, keeps all
// files or has none is the same file when it is saved again. False when something could not be
// removed, or read to tell.
[[nodiscard]] bool remove_twin_manifests(const Directory& out, const GenerationNames& names,
                                         const ModelIdentity& model, const std::string& newest);

// What became of a replaced model's data.
struct RemovedData {
  bool all_gone = false;  // false when something could not be removed, or read to tell
  // Files that stay, by rising name, each with a model of the folder that refers to it.
  std::vector<std::pair<std::string, std::string>> left_for;
};

// Removes the data that the manifests of all generations in `out` say belongs to the model: the
// files that a manifest lists, unless as linked, the manifest last (so that a killed removal can be
// finished), and folders when nothing else is in them. Only files that saves of this model write
// are removed, of no later generation than the manifest and from no folder with another model's
// manifest, whatever the manifest says; in folders of other names only files of the very size that
// the manifest records, and where it does not stand in that folder of the very bytes. What cannot
// be removed stays; the new model is complete without that. `kept`: current_files(). What is in
// `others` stays, and the manifest that lists it: a copy of the model is verified by it.
RemovedData remove_data_of(const Directory& out, const GenerationNames& names,
                           const ModelIdentity& model, const FileSet& kept,
                           const FilesInUse& others);

}  // namespace onnx_external
