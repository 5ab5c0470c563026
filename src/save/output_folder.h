// Opens the output folder of a save, checks whether the names of models, data folders and staging
// folders are allowed in it, and chooses unused names.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/new_folders.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/recovery.h"

namespace onnx_external {

// The output folder of a save. Until this object is destroyed, no other save can write to it.
struct OutputFolder {
  Directory directory;  // locked
  // Folders that were created for the path. If nothing was published, they are removed while the
  // output folder is still locked.
  NewFolders made;
  std::vector<KilledSave> killed = {};  // the save removes or resumes them
};

// Creates the folder if it is missing, locks it, and cleans it up. A save calls this once, before
// it looks at what is in the folder. kBusy if another save has locked it; kUnsupported for a record
// that another version of the library wrote.
[[nodiscard]] Result<OutputFolder> open_output_folder(const std::filesystem::path& path, Sync sync);

// Checks that both names are plain names that are valid in a location, differ on any file system,
// and do not look like the name of a staging folder. Errors: kInvalidArgument.
[[nodiscard]] Status check_output_names(std::string_view model_name, std::string_view data_dir);

// Checks PlanOptions::data_name by the rules of check_output_names(). A name may be given only for
// layouts whose data files are next to the model. An empty name is always allowed. Errors:
// kInvalidArgument.
[[nodiscard]] Status check_data_name(std::string_view model_name, std::string_view data_dir,
                                     std::string_view data_name, Layout layout);

// Calls check_output_names() for all models of a save. If there are several, their names must also
// differ on any file system and end with ".onnx", because before a save removes data, it searches
// only files with that ending for references to the data.
[[nodiscard]] Status check_set_names(std::span<const std::string> model_names,
                                     std::string_view data_dir);

// Checks the names (check_set_names(), check_data_name()) and the existing models, and returns the
// name of the data folder for a save into `out_dir`. The name is `data_dir` for a first save,
// otherwise "<data_dir>.N". N is one more than the N of any replaced model, in any layout, or of
// another model's data in the folder. Fails with kAlreadyExists if a model or its data exists and
// `overwrite` does not allow replacing it; data of other models is not an error. `out_dir` need not
// exist, and may be empty if nothing will be written. Fails with kNotFound if it is a dangling
// link.
[[nodiscard]] Result<std::string> choose_data_dir(const std::filesystem::path& out_dir,
                                                  std::span<const std::string> model_names,
                                                  std::string_view data_dir, Overwrite overwrite,
                                                  Layout layout = Layout::kPerTensor,
                                                  std::string_view data_name = {});

// Chooses the data folder for a single model.
[[nodiscard]] inline Result<std::string> choose_data_dir(
    const std::filesystem::path& out_dir, const std::string& model_name, std::string_view data_dir,
    Overwrite overwrite, Layout layout = Layout::kPerTensor, std::string_view data_name = {}) {
  return choose_data_dir(out_dir, std::span(&model_name, 1), data_dir, overwrite, layout,
                         data_name);
}

// Returns whether the name is of the form ".save-external.<16 hex digits>.tmp".
[[nodiscard]] bool is_staging_name(std::string_view name);
[[nodiscard]] Result<std::string> random_staging_name();

// Fails with kAlreadyExists if an entry is a model that must not be replaced or has another model's
// data, or is an entry that a rename cannot replace.
[[nodiscard]] Status check_models(const Directory& out, std::span<const std::string> models,
                                  Overwrite overwrite);

}  // namespace onnx_external
