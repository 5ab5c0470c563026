// Clears up after killed saves in an output folder. recover() finishes the saves that were killed
// after their commit, and removes the files of the others. The staging folder of a save that had
// renamed nothing yet stays, so that the same save can resume it.
//
// The records in the staging folders tell what to do (save/record.h). After recover(), the only
// data of a model in the folder is that of the model in place. If a step fails, the record stays,
// and the next save tries again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"
#include "save/record.h"

namespace onnx_external {

// Requires: this save has locked the folder. kUnsupported for a record that another version of the
// library wrote.
[[nodiscard]] Status recover(const Directory& out, Sync sync);

// The same, to be called before a save plans anything. Does nothing if the folder does not exist,
// killed saves left nothing in it, or another save is running there.
[[nodiscard]] Status recover(const std::filesystem::path& out_dir, Sync sync);

// The staging folder of a killed save of this job that had renamed nothing; empty when there is
// none. A folder into which others could have written does not count. Requires: recover().
[[nodiscard]] std::string find_job(const Directory& out, const std::string& job);

// Removes the staging folders of saves that had renamed nothing, except `own`.
void remove_unfinished(const Directory& out, std::string_view own);

// Entries of the folder that recover() will remove, because their save was killed before its
// commit.
[[nodiscard]] std::vector<std::string> stale_entries(const Directory& out);

// Renames a model into the output folder.
[[nodiscard]] Status put_in_place(const Directory& staging, const Directory& out,
                                  const Publication& publication, std::size_t model);

// Removes the data of each model of the publication, new or replaced, that is not in place. Files
// that another model refers to stay.
[[nodiscard]] RemovedData remove_stale_data(const Directory& out, const Publication& publication);

}  // namespace onnx_external
