#include "save/publish.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/identity.h"
#include "save/manifest.h"
#include "save/old_data.h"
#include "save/other_models.h"
#include "save/output_folder.h"
#include "save/recovery.h"
#include "save/staging.h"

namespace onnx_external {
namespace {

// A single call or allocation that fails must not leave the old data behind.
constexpr int kClearUpAttempts = 2;

}  // namespace

Result<Transaction> Transaction::begin(OutputFolder out, TransactionOptions options) {
  TRY(check_set_names(options.models, options.data_dir));
  // Its destructor undoes the steps that were done.
  Transaction transaction(std::move(out), std::move(options));
  TRY(transaction.check_models());
  const std::string killed = transaction.killed_before();
  TRY(transaction.check_limits(killed));
  TRY(transaction.reserve_descriptors());
  TRY(transaction.open_staging(killed));
  return transaction;
}

Transaction::Transaction(Transaction&& other) noexcept
    : options_(std::move(other.options_)),
      folder_(std::move(other.folder_)),
      reserve_(std::move(other.reserve_)),
      staging_(std::move(other.staging_)),
      record_(std::move(other.record_)),
      models_(std::move(other.models_)),
      renamed_data_(std::move(other.renamed_data_)),
      kept_(std::move(other.kept_)),
      done_(std::exchange(other.done_, true)) {}

Transaction::~Transaction() {
  try {
    if (!done_) {
      roll_back();
    }
  } catch (const std::bad_alloc&) {
    return;  // the staging folder is removed last, so the next save finds what is left
  }
}

Status Transaction::check_models() const {
  for (const std::string& model : options_.models) {
    TRY(check_model_entry(out(), model, options_.overwrite));
    TRY(check_no_data_of_others(model));
  }
  return {};
}

Status Transaction::check_no_data_of_others(const std::string& model) const {
  const auto kind = out().kind_of(model);
  const auto files = kind && *kind ? files_of_other_models(out(), {&model, 1}) : std::nullopt;
  const auto user = files ? files->find(model) : FilesInUse::const_iterator();
  if (!files || user == files->end()) {
    return {};
  }
  return fail(ErrorCode::kAlreadyExists, out().child(model) + ": contains data of the model " +
                                             quote(user->second) +
                                             " in this folder; choose another name for the model");
}

std::string Transaction::killed_before() const {
  const auto& killed = folder_.killed;
  const auto found = std::find_if(killed.begin(), killed.end(), [&](const KilledSave& save) {
    return !save.job.empty() && save.job == options_.job;
  });
  return found == killed.end() ? std::string() : found->entry;
}

Status Transaction::open_staging(const std::string& killed) {
  TRY(killed.empty() ? Status() : staging_.take_over(out(), killed, options_));
  for (const KilledSave& save : folder_.killed) {
    if (save.entry != killed) {
      (void)out().remove_tree(save.entry);
    }
  }
  TRY(check_data_entries());
  if (is_taken_over()) {
    return {};
  }
  TRY(staging_.make(out(), options_));
  TRY(check_target_calls(out(), staging_.folder(), options_));
  return restart_record({});
}

WrittenRanges Transaction::claimed(std::size_t ranges) const {
  const auto record = read_record(staging());
  return record && *record ? (*record)->written(ranges) : WrittenRanges(ranges);
}

Status Transaction::restart_record(const WrittenRanges& written) {
  TRY_ASSIGN(auto record, RecordWriter::start(staging(), options_.job, written));
  record_.emplace(std::move(record));
  return {};
}

Status Transaction::set_files(std::vector<PlannedFile> files) {
  options_.files = std::move(files);
  return check_data_entries();
}

Status Transaction::check_data_entries() const {
  for (const std::string& entry : data_entries(options_)) {
    TRY_ASSIGN(const auto kind, out().kind_of(entry));
    if (kind) {
      return fail(ErrorCode::kAlreadyExists, out().child(entry) + ": exists");
    }
  }
  return {};
}

Status Transaction::check_limits(const std::string& to_take_over) const {
  const bool has_folder = options_.layout == Layout::kPerTensor;
  TargetNeeds needs{options_.files, options_.models};
  for (const std::string& model : options_.models) {
    needs.names.push_back(manifest_name(options_, model));
  }
  needs.folder = has_folder ? options_.data_dir : "";
  if (!to_take_over.empty()) {
    auto data = out().open_folder(to_take_over);
    if (data && has_folder) {
      data = data->open_folder(options_.data_dir);
    }
    needs.bytes_there = data ? allocated_bytes(*data, options_.files) : 0;
  }
  for (const PlannedFile& file : options_.files) {
    needs.bytes_there += file.hole_bytes;
  }
  return check_target_limits(out(), needs);
}

Status Transaction::reserve_descriptors() {
  constexpr std::size_t kToRemove = 3;  // the staging folder, the data folder, its list
  // Reserve first: if emplace_back threw, the leaked descriptor would keep the folder locked.
  reserve_.reserve(kToRemove);
  while (reserve_.size() < kToRemove) {
    reserve_.emplace_back(::fcntl(out().fd(), F_DUPFD_CLOEXEC, 0));
    if (!reserve_.back()) {
      return fail(errno_error(errno, out().path().string() + ": cannot use the folder"));
    }
  }
  return {};
}

Status Transaction::write_manifests(std::span<const std::string> manifests,
                                    std::span<const ModelIdentity> models) {
  const std::vector<std::string>& names = options_.models;
  models_.assign(models.begin(), models.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    TRY(write_manifest_of(names[i], manifests[i]));
    if (models.empty()) {
      TRY_ASSIGN(models_.emplace_back(), read_identity(staging(), names[i]));
    }
  }
  return sync_staging();
}

Status Transaction::write_manifest_of(const std::string& model, std::string_view text) const {
  return write_file(has_manifest_in_folder(options_) ? staging_.data() : staging_.folder(),
                    manifest_name(options_, model), text, options_.sync);
}

// A folder is synced once: only the per-tensor layout has its data in a folder of its own.
Status Transaction::sync_staging() const {
  TRY(options_.layout == Layout::kPerTensor ? sync_folder(staging_.data(), options_.sync)
                                            : Status());
  return sync_folder(staging_.folder(), options_.sync);
}

// The locations that the new models refer to.
Result<FileSet> Transaction::new_locations() const {
  FileSet files;
  for (const std::string& model : options_.models) {
    TRY_ASSIGN(const auto manifest, read_manifest(staging(), manifest_location(options_, model)));
    for (const ManifestTensor& tensor : manifest.manifest.tensors) {
      files.insert(tensor.file);
    }
  }
  return files;
}

void Transaction::note_data_of_other_tools(const std::string& model, const FileSet& in_use) {
  const auto used = files_of_model(out(), model);
  for (const std::string& file : used.value_or(FileSet())) {
    std::error_code ignored;
    if (!in_use.contains(file) && check_relative_location(file) &&
        std::filesystem::exists(out().path() / file, ignored)) {
      kept_.of_other_tools.push_back(file);
    }
  }
  std::sort(kept_.of_other_tools.begin(), kept_.of_other_tools.end());
}

Result<Publication> Transaction::publication() {
  Publication publication{options_.overwrite, data_entries(options_), {}, {}};
  const std::string folder = options_.layout == Layout::kPerTensor ? options_.data_dir + "/" : "";
  for (const PlannedFile& file : options_.files) {
    if (file.name != options_.models.front()) {
      TRY_ASSIGN(publication.files.emplace_back(),
                 list_file(data(), file.name, folder + file.name));
    }
  }
  std::optional<FileSet> in_use;
  for (std::size_t i = 0; i < options_.models.size(); ++i) {
    PublishedModel& model = publication.models.emplace_back();
    model.name = options_.models[i];
    model.model = models_[i];
    TRY_ASSIGN(model.manifest, list_file(has_manifest_in_folder(options_) ? data() : staging(),
                                         manifest_name(options_, model.name),
                                         manifest_location(options_, model.name)));
    // If it cannot be read, its data would stay for ever.
    TRY_ASSIGN_IN("the model to be replaced cannot be read; move that model elsewhere",
                  model.replaced, identity_in_place(out(), model.name));
    if (!model.replaced) {
      continue;
    }
    if (!in_use) {
      TRY_ASSIGN(in_use, new_locations());
    }
    TRY_ASSIGN_IN("the data of the model to be replaced cannot be read; move that model elsewhere",
                  model.old_data, list_data_of(out(), model.name, *model.replaced, *in_use));
    if (model.old_data.empty()) {
      note_data_of_other_tools(model.name, *in_use);
    }
  }
  return publication;
}

Status Transaction::publish() {
  TRY_ASSIGN(const auto what, publication());
  TRY(record_->publish(what, options_.sync));
  TRY(publish_data(what));
  TRY(sync_folder(out(), options_.sync));
  TRY(options_.sync == Sync::kFiles ? folder_.made.sync() : Status());
  TRY(put_in_place(staging(), out(), what, 0));
  // Committed: from here on nothing may be undone.
  done_ = true;
  folder_.made.keep();
  TRY_IN(
      "only some of the models are in place; the next save to the folder puts the other models in "
      "place",
      publish_models_after_first(what));
  TRY_IN(options_.is_of_one() ? "the new model is in place, but may not survive a power failure"
                              : "the new models are in place, but may not survive a power failure",
         sync_folder(out(), options_.sync));
  clear_up(what);
  return {};
}

// Tries twice to publish each model. After an error, the next save publishes the remaining models.
Status Transaction::publish_models_after_first(const Publication& publication) const {
  for (std::size_t i = 1; i < publication.models.size(); ++i) {
    if (!put_in_place(staging(), out(), publication, i)) {
      TRY(put_in_place(staging(), out(), publication, i));
    }
  }
  return {};
}

// If something fails here, the next save does it, according to the record.
void Transaction::clear_up(const Publication& publication) {
  for (int attempt = 0; attempt < kClearUpAttempts; ++attempt) {
    try {
      RemovedData removed = remove_old_data(out(), publication);
      kept_.for_models = std::move(removed.left_for);
      if (removed.all_gone) {
        remove_staging(out(), staging_.name());
        return;
      }
    } catch (const std::bad_alloc&) {
      continue;  // the memory of this attempt is free again
    }
  }
}

Status Transaction::publish_data(const Publication& publication) {
  std::vector<std::string> entries = publication.entries;
  renamed_data_.reserve(entries.size());  // so that nothing fails between a rename and its record
  for (std::string& entry : entries) {
    const Status moved = move_entry(staging_.folder(), entry, out(), entry);
    if (!moved && moved.error().code != ErrorCode::kAlreadyExists) {
      (void)out().remove_tree(entry);  // a part of it
    }
    TRY(moved);
    renamed_data_.push_back(std::move(entry));
  }
  return {};
}

void Transaction::roll_back() {
  reserve_.clear();
  for (auto entry = renamed_data_.rbegin(); entry != renamed_data_.rend(); ++entry) {
    (void)out().remove_tree(*entry);
  }
  if (!staging_.name().empty()) {
    remove_staging(out(), staging_.name());
  }
  folder_.made = NewFolders();  // while they are locked
}

}  // namespace onnx_external
