// What killed saves left in an output folder. recover() rolls forward what they committed and
// removes what they did not; the staging folder of a save that had renamed nothing yet stays, so
// that the same save can resume it.
//
// Everything is known from the records in the staging folders (save/record.h). After recover(), the
// only data of a model in the folder is that of the model in place. What cannot be done now is left
// to the next save: the record stays until then.
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

// Requires: this save has locked the folder. kUnsupported when a save of another version left
// something.
[[nodiscard]] Status recover(const Directory& out, Sync sync);

// The same before a save plans anything. Does nothing if the folder does not exist, nothing was
// left in it, or another save is at work there.
[[nodiscard]] Status recover(const std::filesystem::path& out_dir, Sync sync);

// The staging folder of a killed save of this job that had renamed nothing; empty when there is
// none. A folder into which others could have written does not count. Requires: recover().
[[nodiscard]] std::string find_job(const Directory& out, const std::string& job);

// Removes the staging folders of saves that had renamed nothing, but for `own`.
void remove_unfinished(const Directory& out, std::string_view own);

// Entries of the folder that recover() will remove, because their save was killed before its
// commit.
[[nodiscard]] std::vector<std::string> stale_entries(const Directory& out);

// Renames a model into the output folder.
[[nodiscard]] Status put_in_place(const Directory& staging, const Directory& out,
                                  const Publication& publication, std::size_t model);

// Removes the data of each new or replaced model that is not the one in place. Files that another
// model refers to stay.
[[nodiscard]] RemovedData remove_stale_data(const Directory& out, const Publication& publication);

}  // namespace onnx_external
