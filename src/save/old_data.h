// Lists the data of the models that a save replaces, before anything is renamed, and removes it
// afterwards.
//
// The list is part of the record (save/record.h). Exactly the listed files are removed, by this
// save or by a later one. A file is spared if its size or modification time shows that it is no
// longer the listed file, or if a model in the folder refers to it. No function here follows a
// link.
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
  std::uint64_t changed = 0;  // modification time in nanoseconds

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

// The manifest of a model, and the files that it lists as the model's own.
struct ListedData {
  ListedFile manifest;
  std::vector<ListedFile> files;

  friend bool operator==(const ListedData&, const ListedData&) = default;
};

// Lists a file of `folder` under the given location.
[[nodiscard]] Result<ListedFile> list_file(const Directory& folder, const std::string& name,
                                           std::string location);

// Lists the data of the given model, which is in the output folder: the files that its manifest
// lists as its own and to which its graph refers, except those in `in_use`. Omits files that no
// save wrote, that is, files without the recorded size, and files that were changed after the
// manifest and do not have the recorded bytes. Returns an error if these files cannot be
// determined.
[[nodiscard]] Result<std::vector<ListedData>> list_data_of(const Directory& out,
                                                           const std::string& model_name,
                                                           const ModelIdentity& model,
                                                           const FileSet& in_use);

struct RemovedData {
  bool all_gone = true;  // false if something could not be read or removed
  // Files that were kept, by ascending name, each with a model in the folder that refers to it.
  std::vector<std::pair<std::string, std::string>> left_for;
};

// Removes the files of each manifest, then the manifest, and then folders that have become empty.
// Files in `in_use` are kept (all files if it is nullopt). If a model that uses such a file has no
// manifest of its own, the manifest that lists the file is also kept, because a copy of a replaced
// model is verified with it. A list applies only to files of its `owner`, unless the owner is this
// user.
[[nodiscard]] RemovedData remove_data(const Directory& out, std::span<const ListedData> data,
                                      uid_t owner, const std::optional<FilesInUse>& in_use);

}  // namespace onnx_external
