// Lists the data of models that a save replaces before anything is renamed, and removes it
// afterwards.
//
// The list is part of the record (save/record.h). This save or a later one removes exactly the
// listed files. A file is spared if its size or the time of its last change shows that it is no
// longer the listed one, or if a model of the folder refers to it. No function here follows a link.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "save/identity.h"
#include "save/other_models.h"

namespace onnx_external {

struct ListedFile {
  std::string location;  // NAME or FOLDER/NAME in the output folder
  std::uint64_t bytes = 0;
  std::uint64_t changed = 0;  // the time of its last change, in nanoseconds

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

// A manifest of a model and the model's own files, as the manifest lists them.
struct ListedData {
  ListedFile manifest;
  std::vector<ListedFile> files;

  friend bool operator==(const ListedData&, const ListedData&) = default;
};

// Lists a file of `folder` that is to have this location.
[[nodiscard]] Result<ListedFile> list_file(const Directory& folder, const std::string& name,
                                           std::string location);

// Lists the data of this model, which is in place: the files that its manifest lists as its own and
// that its graph refers to, except those in `in_use`. Leaves out files that no save wrote: those
// without the recorded size, and those that were changed after the manifest and do not have the
// recorded bytes. Returns an error if these files cannot be determined.
[[nodiscard]] Result<std::vector<ListedData>> list_data_of(const Directory& out,
                                                           const std::string& model_name,
                                                           const ModelIdentity& model,
                                                           const FileSet& in_use);

struct RemovedData {
  bool all_gone = true;  // false when something could not be read or removed
  // Files that stay, by rising name, each with a model of the folder that refers to it.
  std::vector<std::pair<std::string, std::string>> left_for;
};

// Removes each manifest's files, then the manifest, and folders that are empty then. Files in use
// stay (`in_use`; nullopt: all stay), and so does the manifest that lists them if one of these
// models has none of its own: a copy of a replaced model is verified by it. A list counts only for
// files of its `owner`, unless that is this user.
[[nodiscard]] RemovedData remove_data(const Directory& out, std::span<const ListedData> data,
                                      uid_t owner, const std::optional<FilesInUse>& in_use);

}  // namespace onnx_external
