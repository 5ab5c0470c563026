// Cleans the output folder of a save up after killed saves. The record in the staging folder of
// each save says what remains to be done (save/record.h):
//
//   Nothing was about to be renamed    the staging folder stays, so that the same save can resume
//   One of the models is in place      the others follow; the old data is removed
//   No model is in place               the new data is removed
//
// If a step fails, the record stays, and the next save tries again. Files to which a model in the
// folder refers are never removed (save/old_data.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/old_data.h"
#include "save/record.h"

namespace onnx_external {

// A save that was killed before it renamed anything.
struct KilledSave {
  std::string entry;  // its staging folder
  std::string job;    // SaveRecord::job; empty if other users could have written to the folder
};

// Finishes or undoes the killed saves with these staging folders that had begun to rename files.
// Returns the other ones. Fails with kUnsupported for a record that another version of the library
// wrote. Requires: `out` is locked.
[[nodiscard]] Result<std::vector<KilledSave>> recover(const Directory& out,
                                                      std::span<const std::string> entries,
                                                      Sync sync);

// Returns the entries of the folder that the next save will remove, because their save, whose
// staging folder is one of `entries`, was killed before its commit.
[[nodiscard]] std::vector<std::string> stale_entries(const Directory& out,
                                                     std::span<const std::string> entries);

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
