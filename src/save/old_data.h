// Lists the data of the models that a save replaces, before anything is renamed, and removes it
// afterwards.
//
// The list is part of the record (save/record.h). This save, or a later one if this one is killed,
// removes exactly the listed files. A file is kept if its size or modification time differs from
// the list, or if a model in the folder refers to it. The functions do not follow links.
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

// The manifest of a model, and the files that the manifest lists as the model's own.
struct ListedData {
  ListedFile manifest;
  std::vector<ListedFile> files;

  friend bool operator==(const ListedData&, const ListedData&) = default;
};

// Lists a file of `folder` under the given location.
[[nodiscard]] Result<ListedFile> list_file(const Directory& folder, const std::string& name,
                                           std::string location);

// Lists the data of a model in the output folder. These are the files that the model's manifest
// lists as its own and to which its graph refers, except those in `in_use`. Omits files that were
// not written by a save. These are files whose size differs from the recorded size, and files that
// were modified after the manifest and have other bytes than those recorded. Returns an error if
// the files cannot be determined.
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
// Files in `in_use` are kept; if `in_use` is nullopt, all files are kept. If a model that uses such
// a file has no manifest of its own, the manifest that lists the file is also kept, because it is
// needed to verify that model. If `owner` is not this user, only files of this owner are removed.
[[nodiscard]] RemovedData remove_data(const Directory& out, std::span<const ListedData> data,
                                      uid_t owner, const std::optional<FilesInUse>& in_use);

}  // namespace onnx_external
