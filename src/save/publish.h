// A save as a transaction: staged in a folder of its own, published by renaming the model last.
//
//   begin    lock the output folder; see whether the save can succeed; make the staging folder, or
//            take over that of a killed save of the same job; remove what other killed saves left
//   write    data files, manifest and model, under their final relative names
//   publish  rename the data folder (or the manifest and the data files that stand beside the
//            model), then the model (the commit point); then remove the data of the model that was
//            replaced
//
// The models of a set are renamed one by one; the first one is the commit point, after which a save
// that was killed is finished by the next one (save/recovery.h).
//
// If the save is killed at any instant, the old model or the new one is complete: data always gets
// new names, so nothing that the old model refers to is touched before the new one is in place. A
// killed save leaves its staging folder. The record in it (save/record.h) says which ranges were
// written, so that the same save can resume, and, before the first rename, all that is renamed and
// removed. Replaced data is removed file by file, as that list says (save/old_data.h). With
// Sync::kFiles all this holds through power loss too, provided that the disk obeys a flush.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/new_folders.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/record.h"
#include "save/staging.h"
#include "save/written_ranges.h"

namespace onnx_external {

// Rolls back on destruction unless publish() succeeded. One thread at a time; data() may be used
// from any thread.
class Transaction {
 public:
  // Makes `out_dir` where it is missing (and removes it again on failure).
  // kAlreadyExists when the data folder or a data file exists, or the model does and may not be
  // overwritten, or has another model's data; kBusy when another save holds the folder; as
  // check_target_limits().
  [[nodiscard]] static Result<Transaction> begin(const std::filesystem::path& out_dir,
                                                 TransactionOptions options);
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // The folder into which data files are written.
  [[nodiscard]] const Directory& data() const { return staging_.data(); }
  // The folder of the record and the model file.
  [[nodiscard]] const Directory& staging() const { return staging_.folder(); }
  // True when the staging folder was taken over from a killed save. It then holds only the record
  // and files with names of options().files, in any state.
  [[nodiscard]] bool is_taken_over() const { return staging_.is_taken_over(); }
  // The ranges that the record claims to be written.
  [[nodiscard]] WrittenRanges claimed(std::size_t ranges) const;
  // Replaces that record by one of these ranges. To be called if is_taken_over(), once.
  [[nodiscard]] Status restart_record(const WrittenRanges& written);
  // Notes which ranges are written.
  [[nodiscard]] RecordWriter& record() { return *record_; }

  [[nodiscard]] const std::filesystem::path& staging_path() const { return staging().path(); }
  [[nodiscard]] const TransactionOptions& options() const { return options_; }

  // Sets the files that will be published, if they were not known at begin(). kAlreadyExists as
  // there.
  [[nodiscard]] Status set_files(std::vector<PlannedFile> files);

  // Writes the manifest, then makes all names in the staging folder durable. Model and data files
  // must be complete (and synced by their writer). The manifests are in the order of the models.
  // `models`: the sizes and CRC-32s of the model files; read from them if it is empty.
  [[nodiscard]] Status write_manifests(std::span<const std::string> manifests,
                                       std::span<const ModelIdentity> models = {});

  // After an error nothing is visible, with two exceptions: if the folder cannot be synced after
  // the model was renamed, both generations stay; if the first model of a set was renamed and
  // another cannot be, the next save goes on. The message says so.
  [[nodiscard]] Status publish();

  // After publish(): RemovedData::left_for of the model that was replaced.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& data_left_for() const {
    return data_left_for_;
  }
  // After publish(): data files that models without a manifest had, and the new ones do not.
  // Another tool wrote them, so they stay.
  [[nodiscard]] const std::vector<std::string>& data_of_other_tools() const {
    return data_of_other_tools_;
  }

 private:
  explicit Transaction(TransactionOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Status open_locked(const std::filesystem::path& out_dir);
  [[nodiscard]] Status check_models() const;
  [[nodiscard]] Status check_limits(const std::string& to_take_over) const;
  [[nodiscard]] Status check_no_data_of_others(const std::string& model) const;
  [[nodiscard]] Status check_data_entries() const;
  [[nodiscard]] Status reserve_descriptors();
  [[nodiscard]] Status open_staging(const std::string& dead);
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
  NewFolders made_folders_;  // on the way to the output folder
  std::optional<Directory> out_;
  std::vector<UniqueFd> reserve_;  // closed by roll_back(), which may find no others free
  Staging staging_;
  std::optional<RecordWriter> record_;
  std::vector<ModelIdentity> models_;      // that are staged
  std::vector<std::string> renamed_data_;  // entries of the output folder
  std::vector<std::pair<std::string, std::string>> data_left_for_;
  std::vector<std::string> data_of_other_tools_;
  bool done_ = false;  // published, or moved from
};

}  // namespace onnx_external
