// Opens the output folder of a save, and cleans it up after killed saves. The record in the staging
// folder of each save says what remains to be done (save/record.h):
//
//   Nothing was about to be renamed    the staging folder stays, so that the same save can resume
//   One of the models is in place      the others follow; the old data is removed
//   No model is in place               the new data is removed
//
// If a step fails, the record stays, and the next save tries again. Files to which a model in the
// folder refers are never removed (save/old_data.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/new_folders.h"
#include "onnx_external/result.h"
#include "save/old_data.h"
#include "save/record.h"

namespace onnx_external {

// The output folder of a save. Until this object is destroyed, no other save can write to it.
struct OutputFolder {
  Directory directory;  // locked
  // Folders that were created for the path. They are removed again, while they are locked, unless
  // something was published.
  NewFolders made;
};

// Creates the folder if it is missing, locks it, and cleans it up. A save calls this once, before
// it looks at what is in the folder. kBusy if another save has locked it; kUnsupported for a record
// that another version of the library wrote.
[[nodiscard]] Result<OutputFolder> open_output_folder(const std::filesystem::path& path, Sync sync);

// Returns the name of the staging folder of a killed save of this job that had not renamed
// anything; empty if there is none. A folder to which other users could have written does not
// count. Requires: `out` is an OutputFolder.
[[nodiscard]] std::string find_job(const Directory& out, const std::string& job);

// Removes the staging folders of saves that had not renamed anything, except `own`.
void remove_unfinished(const Directory& out, std::string_view own);

// Returns the entries of the folder that the next save will remove, because their save was killed
// before its commit.
[[nodiscard]] std::vector<std::string> stale_entries(const Directory& out);

// Renames a staged model into the output folder.
[[nodiscard]] Status put_in_place(const Directory& staging, const Directory& out,
                                  const Publication& publication, std::size_t model);

// Removes the data of the models that this save has replaced. Requires: all models in the
// publication are in place.
[[nodiscard]] RemovedData remove_old_data(const Directory& out, const Publication& publication);

// Removes a staging folder; the record is removed first. Requires: everything in the record has
// been done.
void remove_staging(const Directory& out, const std::string& name);

}  // namespace onnx_external
