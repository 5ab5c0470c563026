// Implements a save as a transaction: files are written to a staging folder and published by
// renaming them, the model last (save/publish.h). If the save is killed at any time, either the old
// model or the new one is complete.
//
//   begin    check whether the save can succeed; create the staging folder in the output folder,
//            which is locked (save/output_folder.h), or take over the one of a killed save of the
//            same job; remove what other killed saves left behind
//   write    write data files, manifest and model, under their final relative names
//   publish  rename the data folder (or the manifest and the data files next to the model), then
//            the model (the commit point); then remove the data of the replaced model
//
// Data always gets new names, so the data of the old model is not changed before the new model is
// in place. A killed save leaves its staging folder. The record in that folder (save/record.h)
// lists the ranges that were written, so that the same save can resume. Before the first rename, it
// also lists everything that will be renamed and removed. With Sync::kFiles, all of this also holds
// after a power loss, provided that the disk honors a flush.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/new_folders.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/output_folder.h"
#include "save/record.h"
#include "save/written_ranges.h"

namespace onnx_external {

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
  [[nodiscard]] bool has_folder() const { return layout == Layout::kPerTensor; }
  // Returns whether the manifest is inside the data folder. The manifests of a set of models are
  // next to the models.
  [[nodiscard]] bool has_manifest_in_folder() const { return has_folder() && is_of_one(); }
};

// Returns the file name of the manifest of `model`, which is one of the models.
[[nodiscard]] std::string manifest_name(const TransactionOptions& options,
                                        const std::string& model);
// Returns the path of the manifest relative to the output folder. The path relative to the staging
// folder is the same.
[[nodiscard]] std::string manifest_location(const TransactionOptions& options,
                                            const std::string& model);

// Returns the names of the data files or data folder that will be next to the model.
[[nodiscard]] std::vector<std::string> data_entries(const TransactionOptions& options);

// The modes of folders. That of published folders is reduced by the umask.
inline constexpr mode_t kPublishedFolderMode = 0777;
inline constexpr mode_t kStagingMode = 0700;

// Creates a staging folder, and returns its name.
[[nodiscard]] Result<std::string> make_staging_folder(const Directory& out);

// These two functions wait for the disk only with Sync::kFiles.
[[nodiscard]] Status write_file(const Directory& folder, const std::string& name,
                                std::string_view content, Sync sync);
[[nodiscard]] Status sync_folder(const Directory& folder, Sync sync);

// A save in progress. Unless commit() was called, the destructor rolls back. For use by one thread
// at a time, except that data() may be called from any thread.
class Transaction {
 public:
  // Begins a save. Fails with kAlreadyExists if the data folder or a data file exists, or if the
  // model exists and must not be replaced or has another model's data. Other errors are those of
  // check_target_limits().
  [[nodiscard]] static Result<std::unique_ptr<Transaction>> begin(OutputFolder out,
                                                                  TransactionOptions options);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();

  [[nodiscard]] const Directory& out() const { return folder_.directory; }
  // Returns the folders that were created for the path of the output folder.
  [[nodiscard]] const NewFolders& made() const { return folder_.made; }
  // Returns the folder that contains the record and the model file.
  [[nodiscard]] const Directory& staging() const { return *staging_; }
  [[nodiscard]] const std::string& staging_name() const { return staging_name_; }
  // Returns the folder into which data files are written.
  [[nodiscard]] const Directory& data() const { return data_ ? *data_ : *staging_; }
  // Returns whether the staging folder was taken over from a killed save. It then contains only the
  // record and files with names in options().files, which may be incomplete.
  [[nodiscard]] bool is_taken_over() const { return is_taken_over_; }
  // Returns the ranges that have been written according to the record.
  [[nodiscard]] WrittenRanges claimed(std::size_t ranges) const;
  // Replaces the record of the killed save by one that lists these ranges. Must be called once if
  // is_taken_over().
  [[nodiscard]] Status restart_record(const WrittenRanges& written);
  // Returns the record of this save, to which every written range must be added.
  [[nodiscard]] RecordWriter& record() { return *record_; }

  [[nodiscard]] const TransactionOptions& options() const { return options_; }

  // Sets the files that will be published, if they were not known at begin(). Fails with
  // kAlreadyExists as for begin().
  [[nodiscard]] Status set_files(std::vector<PlannedFile> files);

  // The entries of the output folder that a roll back removes: data that was moved there.
  [[nodiscard]] std::vector<std::string>& moved_data() { return moved_data_; }
  // Ends the transaction: what was renamed stays.
  void commit();

 private:
  Transaction(OutputFolder out, TransactionOptions options)
      : options_(std::move(options)), folder_(std::move(out)) {}
  [[nodiscard]] Status check_data_entries() const;
  [[nodiscard]] Status reserve_descriptors();
  // Returns the staging folder of a killed save of the same job; empty if there is none.
  [[nodiscard]] std::string killed_before() const;
  [[nodiscard]] std::uint64_t bytes_there(const std::string& killed) const;
  [[nodiscard]] Status open_staging(const std::string& killed);
  [[nodiscard]] Status take_over(const std::string& killed);
  [[nodiscard]] Status open_data();
  void roll_back();

  TransactionOptions options_;
  OutputFolder folder_;
  // Descriptors that roll_back() closes first, because it needs descriptors and no others may be
  // free.
  std::vector<UniqueFd> reserve_;
  std::string staging_name_;  // empty until the folder exists
  std::optional<Directory> staging_;
  std::optional<Directory> data_;  // with a data folder
  bool is_taken_over_ = false;
  std::optional<RecordWriter> record_;
  std::vector<std::string> moved_data_;
  bool is_committed_ = false;
};

// Returns the disk space of the files that exist, counting at most their planned bytes.
[[nodiscard]] std::uint64_t allocated_bytes(const Directory& data,
                                            const std::vector<PlannedFile>& files);

// Rejects names and paths that are too long for the file system, files that are larger than the
// file system or the process limit allows, and saves that need more bytes than are free.
// `bytes_there` bytes of the files are already on the disk, or are holes. Limits that the file
// system does not report are not checked. Errors: kIo; the message says how much is needed and how
// much is available.
[[nodiscard]] Status check_target_limits(const Directory& out, const TransactionOptions& options,
                                         std::uint64_t bytes_there);

// Works like write_plan() in onnx_external/writer.h. `folder` is the output folder, if the save has
// already opened it.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            std::optional<OutputFolder> folder,
                                            const WriteOptions& options);

}  // namespace onnx_external
