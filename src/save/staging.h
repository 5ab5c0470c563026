// The names of everything that a save puts into its output folder, and the staging folder in which
// it writes them before it publishes any.
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

using EntryNames = std::set<std::string, std::less<>>;  // in a folder

struct TransactionOptions {
  std::vector<std::string> models;  // their names; one or more
  std::string data_dir;
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  // Only kPerTensor has a data folder; the files of other layouts lie beside the model. In kInline
  // the only file is the model itself.
  Layout layout = Layout::kPerTensor;
  std::vector<PlannedFile> files = {};  // the files that will be written, as far as they are known
  // SavePlan::job; a staging folder with its record is taken over. If empty, none is taken over.
  std::string job = {};
  std::string data_name = {};  // SavePlan::data_name

  [[nodiscard]] bool is_of_one() const { return models.size() == 1; }
};

// The models of a set have their manifests beside them.
[[nodiscard]] bool has_manifest_in_folder(const TransactionOptions& options);
// `model`: one of the models.
[[nodiscard]] std::string manifest_name(const TransactionOptions& options,
                                        const std::string& model);
// Relative to the output folder, and to the staging folder.
[[nodiscard]] std::string manifest_location(const TransactionOptions& options,
                                            const std::string& model);

// The entry of the output folder that is the manifest, or has it inside.
[[nodiscard]] std::string manifest_entry(const TransactionOptions& options,
                                         const std::string& model);

// The entries that will lie beside the model.
[[nodiscard]] std::vector<std::string> data_entries(const TransactionOptions& options);

// Published folders get their mode from the umask.
inline constexpr mode_t kPublishedFolderMode = 0777;
inline constexpr mode_t kStagingMode = 0700;

[[nodiscard]] Status remove_all_but(const Directory& folder, const EntryNames& spared);

// Creates a file with room for `bytes`.
[[nodiscard]] Result<OutputFile> create_file(const Directory& folder, const std::string& name,
                                             std::uint64_t bytes);

// Both wait for the disk only with Sync::kFiles.
[[nodiscard]] Status write_file(const Directory& folder, const std::string& name,
                                std::string_view content, Sync sync);
[[nodiscard]] Status sync_folder(const Directory& folder, Sync sync);

class Staging {
 public:
  // Makes a new folder in `out`. After an error, name() is the folder that must be removed.
  [[nodiscard]] Status make(const Directory& out, const TransactionOptions& options);

  // Takes over the folder of a killed save of the same job. Its record and the files of the job
  // stay and are checked later; everything else is removed.
  [[nodiscard]] Status take_over(const Directory& out, const std::string& name,
                                 const TransactionOptions& options);

  // Empty until the folder exists.
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

}  // namespace onnx_external
