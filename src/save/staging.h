// Prepares the place where a save writes: determines the names of everything that it adds to its
// output folder, checks that there is room for it and that the file system supports what publishing
// needs, and creates the staging folder, in which files are written before they are published.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/output_file.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

using EntryNames = std::set<std::string, std::less<>>;  // names in one folder

struct TransactionOptions {
  std::vector<std::string> models;  // names of the models; at least one
  std::string data_dir;
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  // With kPerTensor, data files are in a data folder; with other layouts, they are next to the
  // model. With kInline, the model is the only file.
  Layout layout = Layout::kPerTensor;
  std::vector<PlannedFile> files = {};  // the files that will be written, if they are known
  // SavePlan::job. A staging folder whose record has the same hash is reused. If empty, no staging
  // folder is reused.
  std::string job = {};
  std::string data_name = {};  // SavePlan::data_name

  [[nodiscard]] bool is_of_one() const { return models.size() == 1; }
};

// Returns whether the manifest is inside the data folder. The manifests of a set of models are next
// to the models.
[[nodiscard]] bool has_manifest_in_folder(const TransactionOptions& options);
// Returns the file name of the manifest of `model`, which is one of the models.
[[nodiscard]] std::string manifest_name(const TransactionOptions& options,
                                        const std::string& model);
// Returns the path of the manifest relative to the output folder. The path relative to the staging
// folder is the same.
[[nodiscard]] std::string manifest_location(const TransactionOptions& options,
                                            const std::string& model);

// Returns the entry of the output folder that is the manifest or the folder with the manifest.
[[nodiscard]] std::string manifest_entry(const TransactionOptions& options,
                                         const std::string& model);

// Returns the names of the data files or data folder that will be next to the model.
[[nodiscard]] std::vector<std::string> data_entries(const TransactionOptions& options);

// The modes of folders. That of published folders is reduced by the umask.
inline constexpr mode_t kPublishedFolderMode = 0777;
inline constexpr mode_t kStagingMode = 0700;

[[nodiscard]] Status remove_all_but(const Directory& folder, const EntryNames& spared);

// Creates a file, and reserves disk space for `bytes` bytes.
[[nodiscard]] Result<OutputFile> create_file(const Directory& folder, const std::string& name,
                                             std::uint64_t bytes);

// These two functions wait for the disk only with Sync::kFiles.
[[nodiscard]] Status write_file(const Directory& folder, const std::string& name,
                                std::string_view content, Sync sync);
[[nodiscard]] Status sync_folder(const Directory& folder, Sync sync);

class Staging {
 public:
  // Creates a new staging folder in `out`. After an error, name() is the folder that must be
  // removed.
  [[nodiscard]] Status make(const Directory& out, const TransactionOptions& options);

  // Takes over the staging folder of a killed save of the same job. The record and the files of the
  // job are kept, and are checked later. Everything else in the folder is removed.
  [[nodiscard]] Status take_over(const Directory& out, const std::string& name,
                                 const TransactionOptions& options);

  // Returns the name of the staging folder; empty until the folder exists.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool is_taken_over() const { return taken_over_; }

  // Requires: make() or take_over() succeeded.
  [[nodiscard]] const Directory& folder() const { return *folder_; }
  [[nodiscard]] const Directory& data() const { return *data_; }

 private:
  [[nodiscard]] Status clear(const TransactionOptions& options) const;
  [[nodiscard]] Status open_data(const Directory& out, const TransactionOptions& options);

  std::string name_;
  bool taken_over_ = false;
  std::optional<Directory> folder_;
  std::optional<Directory> data_;
};

struct TargetNeeds {
  const std::vector<PlannedFile>& files;
  std::vector<std::string> names;  // of files other than data files
  std::uint64_t bytes_there = 0;   // bytes of `files` that are already on the disk, or are holes
  std::string folder = {};         // the folder for `files`; empty if they are next to the model
};

// Returns the disk space of the files that exist, counting at most their planned bytes.
[[nodiscard]] std::uint64_t allocated_bytes(const Directory& data,
                                            const std::vector<PlannedFile>& files);

// Rejects names and paths that are too long for the file system, files that are larger than the
// file system or the process limit allows, and saves that need more bytes than are free. Limits
// that the file system does not report are not checked. Errors: kIo; the message says how much is
// needed and how much is available.
[[nodiscard]] Status check_target_limits(const Directory& out, const TargetNeeds& needs);

// Renames an empty file from the staging folder into the output folder, as publishing will, and
// over another file if the save may replace files. If there is much to copy, also syncs. Storage
// buckets that are mounted as file systems do not support some of these calls. Errors: kIo.
[[nodiscard]] Status check_target_calls(const Directory& out, const Directory& staging,
                                        const TransactionOptions& options);

}  // namespace onnx_external
