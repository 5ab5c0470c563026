// Implements a save as a transaction: files are written to a staging folder and published by
// renaming them, the model last. If the save is killed at any time, either the old model or the new
// one is complete.
//
//   begin    check whether the save can succeed; create the staging folder in the output folder,
//            which is locked (save/output_folder.h), or take over the one of a killed save of the
//            same job; remove what other killed saves left behind
//   write    write data files, manifest and model, under their final relative names
//   publish  rename the data folder (or the manifest and the data files next to the model), then
//            the model (the commit point); then remove the data of the replaced model
//
// The models of a set are renamed one by one. The rename of the first model is the commit point; if
// the save is killed after it, the next save finishes the renames (save/recovery.h).
//
// Data always gets new names, so the data of the old model is not changed before the new model is
// in place. A killed save leaves its staging folder. The record in that folder (save/record.h)
// lists the ranges that were written, so that the same save can resume. Before the first rename, it
// also lists everything that will be renamed and removed. Replaced data is removed file by file,
// according to this list (save/old_data.h). With Sync::kFiles, all of this also holds after a power
// loss, provided that the disk honors a flush.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/output_folder.h"
#include "save/record.h"
#include "save/staging.h"
#include "save/written_ranges.h"

namespace onnx_external {

// Works like write_plan() in onnx_external/writer.h. `folder` is the output folder, if the save has
// already opened it.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            std::optional<OutputFolder> folder,
                                            const WriteOptions& options);

// A save in progress. Unless publish() succeeded, the destructor rolls back. For use by one thread
// at a time, except that data() may be called from any thread.
class Transaction {
 public:
  // Begins a save. Fails with kAlreadyExists if the data folder or a data file exists, or if the
  // model exists and must not be replaced or has another model's data. Other errors are those of
  // check_target_limits().
  [[nodiscard]] static Result<Transaction> begin(OutputFolder out, TransactionOptions options);
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // Returns the folder into which data files are written.
  [[nodiscard]] const Directory& data() const { return staging_.data(); }
  // Returns the folder that contains the record and the model file.
  [[nodiscard]] const Directory& staging() const { return staging_.folder(); }
  // Returns whether the staging folder was taken over from a killed save. It then contains only the
  // record and files with names in options().files, which may be incomplete.
  [[nodiscard]] bool is_taken_over() const { return staging_.is_taken_over(); }
  // Returns the ranges that have been written according to the record.
  [[nodiscard]] WrittenRanges claimed(std::size_t ranges) const;
  // Replaces the record of the killed save by one that lists these ranges. Must be called once if
  // is_taken_over().
  [[nodiscard]] Status restart_record(const WrittenRanges& written);
  // Returns the record of this save, to which every written range must be added.
  [[nodiscard]] RecordWriter& record() { return *record_; }

  [[nodiscard]] const std::filesystem::path& staging_path() const { return staging().path(); }
  [[nodiscard]] const TransactionOptions& options() const { return options_; }

  // Sets the files that will be published, if they were not known at begin(). Fails with
  // kAlreadyExists as for begin().
  [[nodiscard]] Status set_files(std::vector<PlannedFile> files);

  // Writes the manifests, then makes all names in the staging folder durable. `manifests` are in
  // the order of the models. `models` has the sizes and CRC-32s of the model files; if it is empty,
  // they are computed from the files. Requires: model and data files are complete, and were synced
  // by the code that wrote them.
  [[nodiscard]] Status write_manifests(std::span<const std::string> manifests,
                                       std::span<const ModelIdentity> models = {});

  // Publishes the save. If it fails, nothing is visible, with two exceptions that the message
  // states. If the folder cannot be synced after the model was renamed, the data of both the old
  // and the new model stays. If the first model of a set was renamed and another model cannot be
  // renamed, the next save continues.
  [[nodiscard]] Status publish();

  // Returns, after publish(), StagedSave::kept_data(). Files of other tools are those to which
  // replaced models without a manifest referred, and to which the new models do not refer.
  [[nodiscard]] const KeptData& kept_data() const { return kept_; }

 private:
  Transaction(OutputFolder out, TransactionOptions options)
      : options_(std::move(options)), folder_(std::move(out)) {}
  [[nodiscard]] const Directory& out() const { return folder_.directory; }
  [[nodiscard]] Status check_models() const;
  [[nodiscard]] Status check_limits(const std::string& to_take_over) const;
  [[nodiscard]] Status check_no_data_of_others(const std::string& model) const;
  [[nodiscard]] Status check_data_entries() const;
  [[nodiscard]] Status reserve_descriptors();
  // Returns the staging folder of a killed save of the same job; empty if there is none.
  [[nodiscard]] std::string killed_before() const;
  [[nodiscard]] Status open_staging(const std::string& killed);
  [[nodiscard]] Status write_manifest_of(const std::string& model, std::string_view text) const;
  [[nodiscard]] Status sync_staging() const;
  [[nodiscard]] Result<FileSet> new_locations() const;
  [[nodiscard]] Result<Publication> publication();
  void note_data_of_other_tools(const std::string& model, const FileSet& in_use);
  [[nodiscard]] Status publish_data(const Publication& publication);
  [[nodiscard]] Status publish_models_after_first(const Publication& publication) const;
  void clear_up(const Publication& publication);
  void roll_back();

  TransactionOptions options_;
  OutputFolder folder_;
  // Descriptors that roll_back() closes first, because it needs descriptors and no others may be
  // free.
  std::vector<UniqueFd> reserve_;
  Staging staging_;
  std::optional<RecordWriter> record_;
  std::vector<ModelIdentity> models_;      // identities of the staged models
  std::vector<std::string> renamed_data_;  // entries of the output folder
  KeptData kept_;
  bool done_ = false;  // published, or moved from
};

}  // namespace onnx_external
