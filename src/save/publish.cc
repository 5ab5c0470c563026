#include "save/publish.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/output_file.h"
#include "base/remedy.h"
#include "base/text.h"
#include "save/file_names.h"
#include "save/journal.h"
#include "save/manifest.h"
#include "save/output_names.h"
#include "save/replaced.h"
#include "save/reuse.h"
#include "save/target_limits.h"

namespace onnx_external {
namespace {

constexpr mode_t kStagingMode = 0700;
constexpr mode_t kDataMode = 0777;
// One call or allocation that fails must not leave the old data.
constexpr int kClearUpAttempts = 2;

Status remove_all_but(const Directory& folder, const EntryNames& kept) {
  const auto entries = folder.entries();
  if (!entries) {
    return fail(entries.error());
  }
  for (const std::string& entry : *entries) {
    Status removed = kept.contains(entry) ? Status() : folder.remove_tree(entry);
    if (!removed) {
      return removed;
    }
  }
  return {};
}

// This user's, and nobody else may write into it.
bool is_private(const Directory& folder) {
  struct stat info {};
  return ::fstat(folder.fd(), &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

Result<Transaction> Transaction::begin(const std::filesystem::path& out_dir,
                                       TransactionOptions options) {
  if (Status names = check_output_names(options.model_name, options.data_dir); !names) {
    return fail(std::move(names).error());
  }
  Transaction transaction(std::move(options));  // undoes the steps that were done
  auto made_folders = NewFolders::make(out_dir);
  if (!made_folders) {
    return fail(std::move(made_folders).error());
  }
  transaction.made_folders_ = *std::move(made_folders);
  auto out = Directory::open(out_dir);
  if (!out) {
    return fail(std::move(out).error());
  }
  transaction.out_ = *std::move(out);
  Status status = transaction.lock_and_check_model();
  const std::string dead = status ? transaction.find_job_to_take_over() : std::string();
  if (status) {
    status = transaction.check_limits(dead);
  }
  if (status) {
    status = transaction.reserve_descriptors();
  }
  if (status && !dead.empty()) {
    status = transaction.take_over(dead);
  }
  if (status) {
    transaction.remove_stale_staging();
    status = transaction.check_data_entries();
  }
  if (status && !transaction.staging_) {
    status = transaction.make_staging();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return transaction;
}

Transaction::Transaction(Transaction&& other) noexcept
    : options_(std::move(other.options_)),
      made_folders_(std::move(other.made_folders_)),
      out_(std::move(other.out_)),
      reserve_(std::move(other.reserve_)),
      staging_name_(std::move(other.staging_name_)),
      taken_over_(other.taken_over_),
      staging_(std::move(other.staging_)),
      data_(std::move(other.data_)),
      extra_(std::move(other.extra_)),
      renamed_data_(std::move(other.renamed_data_)),
      data_left_for_(std::move(other.data_left_for_)),
      done_(std::exchange(other.done_, true)) {}

Transaction::~Transaction() {
  try {
    if (!done_) {
      roll_back();
    }
  } catch (const std::bad_alloc&) {
    return;  // the staging folder goes last: by it the next save finds what is left
  }
}

Status Transaction::lock_and_check_model() {
  const std::optional<bool> locked = out_->try_lock();
  if (locked == false) {
    return fail(ErrorCode::kIo, out_->path().string() +
                                    ": another save is writing into this folder; wait for its end");
  }
  if (!locked && options_.keeps_files) {
    return fail(no_locks_error(*out_));
  }
  Status entry = check_model_entry(*out_, options_.model_name, options_.overwrite);
  return entry ? check_no_data_of_others() : entry;
}

Status Transaction::check_no_data_of_others() const {
  const auto kind = out_->kind_of(options_.model_name);
  const auto files =
      kind && *kind ? files_of_other_models(*out_, options_.model_name) : std::nullopt;
  const auto user = files ? files->find(options_.model_name) : FilesInUse::const_iterator();
  if (!files || user == files->end()) {
    return {};
  }
  return fail(ErrorCode::kAlreadyExists, out_->child(options_.model_name) +
                                             ": has data of the model " + quote(user->second) +
                                             " in this folder; give the model another name");
}

Status Transaction::check_data_entries() const {
  for (const std::string& entry : data_entries()) {
    const auto kind = out_->kind_of(entry);
    if (!kind) {
      return fail(kind.error());
    }
    if (*kind) {
      return fail(ErrorCode::kAlreadyExists, out_->child(entry) + ": exists");
    }
  }
  return {};
}

bool Transaction::has_manifest_in_folder() const {
  return options_.layout == Layout::kPerTensor && !options_.keeps_files;
}

std::string Transaction::manifest_location() const {
  return has_manifest_in_folder() ? options_.data_dir + "/" + manifest_name() : manifest_name();
}

std::string Transaction::manifest_name() const {
  return has_manifest_in_folder()
             ? std::string(kManifestName)
             : manifest_file_name(numbered_stem(options_.model_name, options_.data_dir));
}

// What comes to stand beside the model. The manifest is the first: by it the next save finds what a
// killed one left.
std::vector<std::string> Transaction::data_entries() const {
  if (has_manifest_in_folder()) {
    return {options_.data_dir};
  }
  std::vector<std::string> entries{manifest_name()};
  if (options_.layout == Layout::kPerTensor) {
    if (!options_.files.empty()) {
      entries.push_back(options_.data_dir);
    }
    return entries;
  }
  for (const PlannedFile& file : options_.files) {
    if (file.name != options_.model_name) {  // its rename is the commit
      entries.push_back(file.name);
    }
  }
  return entries;
}

GenerationNames Transaction::generation_names() const {
  return {options_.model_name, std::string(generation_base(options_.data_dir))};
}

// Those of dead savers: the lock on the output folder is ours. None where locks do not work.
std::vector<std::string> Transaction::staging_folders() const {
  auto entries = out_->try_lock() == true ? out_->entries() : std::vector<std::string>();
  if (!entries) {
    return {};
  }
  std::erase_if(*entries, [](const std::string& entry) { return !is_staging_name(entry); });
  return *std::move(entries);
}

// Empty when there is none. What others could have written is not gone on with.
std::string Transaction::find_job_to_take_over() const {
  if (options_.job.empty()) {
    return {};
  }
  for (const std::string& entry : staging_folders()) {
    const auto staging = out_->open_folder(entry);
    if (staging && is_private(*staging) && has_journal_of(*staging, options_.job)) {
      return entry;
    }
  }
  return {};
}

Status Transaction::check_limits(const std::string& to_take_over) const {
  const bool has_folder = options_.layout == Layout::kPerTensor;
  TargetNeeds needs{options_.files, {options_.model_name, manifest_name()}};
  needs.folder = has_folder ? options_.data_dir : "";
  if (!to_take_over.empty()) {
    auto data = out_->open_folder(to_take_over);
    if (data && has_folder) {
      data = data->open_folder(options_.data_dir);
    }
    needs.bytes_there = data ? allocated_bytes(*data, options_.files) : 0;
  }
  needs.bytes_there += options_.hole_bytes;
  return check_target_limits(*out_, needs);
}

Status Transaction::reserve_descriptors() {
  constexpr std::size_t kToRemove = 3;  // the staging folder, the data folder, its list
  // A descriptor that were lost for want of memory would keep the lock.
  reserve_.reserve(kToRemove);
  while (reserve_.size() < kToRemove) {
    reserve_.emplace_back(::fcntl(out_->fd(), F_DUPFD_CLOEXEC, 0));
    if (!reserve_.back()) {
      return fail(errno_error(errno, out_->path().string() + ": cannot work in the folder"));
    }
  }
  return {};
}

// What only this job can have left there is kept: its journal, and files that it will check.
// Nothing is taken over while the folder tells of data that could not be removed.
Status Transaction::take_over(const std::string& name) {
  auto staging = out_->open_folder(name);
  if (!staging) {
    return fail(std::move(staging).error());
  }
  if (!finish_exchange(*staging) ||  // killed between its renames
      !remove_data_of_staged_models(*staging).all_gone) {
    return {};
  }
  staging_name_ = name;
  staging_ = *std::move(staging);
  taken_over_ = true;
  Status status = clear_staging();
  return status ? open_data() : status;
}

Status Transaction::clear_staging() const {
  const bool has_folder = options_.layout == Layout::kPerTensor;
  EntryNames files;
  for (const PlannedFile& file : options_.files) {
    files.insert(file.name);
  }
  EntryNames top = has_folder ? EntryNames{options_.data_dir} : files;
  top.emplace(kJournalName);
  Status status = remove_all_but(*staging_, top);
  const auto data = status && has_folder ? staging_->open_folder(options_.data_dir)
                                         : fail(ErrorCode::kNotFound, "");
  return data ? remove_all_but(*data, files) : status;
}

// What tells whose data is to go stays as long as there is such data.
void Transaction::remove_stale_staging() const {
  for (const std::string& entry : staging_folders()) {
    if (entry == staging_name_) {
      continue;
    }
    const auto staging = out_->open_folder(entry);
    if (staging && !finish_exchange(*staging)) {
      continue;  // it may hold what is the current model's
    }
    if (staging && !remove_data_of_staged_models(*staging).all_gone) {
      (void)remove_all_but(*staging, {options_.model_name, std::string(kReplacedName)});
      continue;
    }
    (void)out_->remove_tree(entry);
  }
}

// A model in a staging folder, or in its note, is not the current one: it was replaced, or its
// saver died between the two renames. Either way its data outside of the folder serves nobody, but
// for copies of it.
RemovedData Transaction::remove_data_of_staged_models(const Directory& staging) const {
  const auto staged = identify(staging, options_.model_name);
  const auto kind = staging.kind_of(options_.model_name);
  const auto note = read_replaced(staging);
  const auto noted = note ? *note : std::nullopt;
  RemovedData removed{note && (staged || (kind && *kind != EntryKind::kFile)), {}};
  const auto current = staged || noted ? identify(*out_, options_.model_name) : std::nullopt;
  for (const auto& gone : {staged, noted}) {
    if (gone && gone == current) {
      const std::string own = has_manifest_in_folder() ? options_.data_dir : manifest_name();
      removed.all_gone =
          remove_twin_manifests(*out_, generation_names(), *gone, done_ ? own : "") &&
          removed.all_gone;
    } else if (gone) {
      const auto kept = current_files(*out_, generation_names(), current);
      const auto others = files_of_other_models(*out_, options_.model_name);
      RemovedData data = kept && others
                             ? remove_data_of(*out_, generation_names(), *gone, *kept, *others)
                             : RemovedData();
      removed.all_gone = removed.all_gone && data.all_gone;
      std::move(data.left_for.begin(), data.left_for.end(), std::back_inserter(removed.left_for));
    }
  }
  return removed;
}

// Killed after the commit point, a saver left test data of the current model in its staging folder.
// False when it cannot be told whether it did.
bool Transaction::finish_exchange(const Directory& staging) const {
  const auto current = current_manifest(*out_, generation_names());
  for (std::size_t i = 0; current && i < current->test_data.size();) {
    const std::string& file = current->test_data[i].file;
    const std::string set = file.substr(0, file.find('/'));
    const auto staged = staging.open_folder(set);
    const auto published = out_->open_folder(set);
    const auto is_in = [&](const Result<Directory>& folder, const std::string& name) {
      return folder && is_as_recorded(*folder, name, current->test_data[i]);
    };
    EntryNames names;
    bool is_there = true;  // all of it is in one of the two, and not all in place
    bool is_in_place = true;
    for (; i < current->test_data.size() && current->test_data[i].file.starts_with(set + "/");
         ++i) {
      const std::string name = current->test_data[i].file.substr(set.size() + 1);
      names.insert(name);
      const bool has_place = is_in(published, name);
      is_in_place = is_in_place && has_place;
      is_there = is_there && (has_place || is_in(staged, name));
    }
    if (is_there && !is_in_place && !replace_folder(staging, set, names)) {
      return false;
    }
  }
  return current || current.error().code == ErrorCode::kNotFound;
}

Status Transaction::make_staging() {
  auto name = random_staging_name();
  if (!name) {
    return fail(std::move(name).error());
  }
  if (Status made = out_->make_folder(*name, kStagingMode); !made) {
    if (::faccessat(out_->fd(), ".", W_OK | X_OK, AT_EACCESS) == 0) {
      return made;
    }
    Error error = errno_error(errno, out_->path().string() + ": cannot write into the folder");
    error.message += "; change its permissions, or name another folder";
    return fail(std::move(error));
  }
  staging_name_ = *std::move(name);
  auto staging = out_->open_folder(staging_name_);
  if (!staging) {
    return fail(std::move(staging).error());
  }
  staging_ = *std::move(staging);
  return open_data();
}

// Makes the data folder where it is missing.
Status Transaction::open_data() {
  const bool has_folder = options_.layout == Layout::kPerTensor;
  if (has_folder) {
    Status made = staging_->make_folder(options_.data_dir, kDataMode);
    if (!made && made.error().code != ErrorCode::kAlreadyExists) {
      return made;
    }
  }
  auto data =
      has_folder ? staging_->open_folder(options_.data_dir) : out_->open_folder(staging_name_);
  if (!data) {
    return fail(std::move(data).error());
  }
  data_ = *std::move(data);
  return {};
}

Result<const Directory*> Transaction::add_test_data_folder(const std::string& name) {
  const auto kind = out_->kind_of(name);
  if (!kind) {
    return fail(kind.error());
  }
  if (*kind) {
    if (options_.overwrite == Overwrite::kRefuse) {
      return fail_with(ErrorCode::kAlreadyExists, out_->child(name) + ": exists",
                       {{"overwrite", "", "replaces it"}});
    }
    const auto old = out_->open_folder(name);
    if (!old || !holds_only_inputs(*old)) {
      return fail(ErrorCode::kAlreadyExists, out_->child(name) +
                                                 ": holds other things than recorded inputs; move "
                                                 "it away");
    }
  }
  if (Status made = staging_->make_folder(name, kDataMode); !made) {
    return fail(std::move(made).error());
  }
  auto folder = staging_->open_folder(name);
  if (!folder) {
    return fail(std::move(folder).error());
  }
  extra_.push_back(
      {name, std::make_unique<Directory>(*std::move(folder)), kind->has_value(), false});
  return extra_.back().folder.get();
}

Status Transaction::write_file(const Directory& folder, const std::string& name,
                               std::string_view content) const {
  auto file = OutputFile::create(folder, name);
  if (!file) {
    return fail(std::move(file).error());
  }
  Status status = file->preallocate(content.size());
  if (status) {
    status = file->write(0, std::as_bytes(std::span(content)));
  }
  if (status && options_.sync == Sync::kFiles) {
    status = file->sync();
  }
  return status ? file->close() : status;
}

Status Transaction::sync_folder(const Directory& folder) const {
  return options_.sync == Sync::kFiles ? folder.sync() : Status();
}

Status Transaction::write_model(std::string_view model, std::string_view manifest) {
  Status status = write_file(*staging_, options_.model_name, model);
  return status ? write_manifest(manifest) : status;
}

Status Transaction::write_manifest(std::string_view manifest) {
  Status status =
      write_file(has_manifest_in_folder() ? *data_ : *staging_, manifest_name(), manifest);
  if (status) {
    status = sync_folder(*data_);
  }
  for (const ExtraFolder& extra : extra_) {
    status = status ? sync_folder(*extra.folder) : status;
  }
  return status ? sync_folder(*staging_) : status;
}

Status Transaction::publish() {
  Status status = publish_data();
  if (status) {
    status = publish_new_folders();
  }
  if (status) {
    status = sync_folder(*out_);
  }
  if (status && options_.sync == Sync::kFiles) {
    status = made_folders_.sync();
  }
  if (status) {
    status = commit();
  }
  if (!status) {
    return status;
  }
  // Committed: from here on nothing may be undone.
  done_ = true;
  made_folders_.keep();
  if (Status exchanged = exchange_old_folders(); !exchanged) {
    return fail_in("the new model is in place, but not its test data",
                   std::move(exchanged).error());
  }
  if (Status synced = sync_folder(*out_); !synced) {
    return fail_in("the new model is in place, but may not survive a power cut",
                   std::move(synced).error());
  }
  clear_up();
  return {};
}

// Where a model is replaced, the two change places: the old one is then in the staging folder and
// tells, even after a kill, whose data is to be removed. Where they cannot, a note tells.
Status Transaction::commit() const {
  const std::string& name = options_.model_name;
  if (options_.overwrite == Overwrite::kRefuse) {
    return rename_entry(*staging_, name, *out_, name, Replace::kNo);
  }
  Status exchanged = exchange_entries(*staging_, name, *out_, name);
  if (exchanged || exchanged.error().code == ErrorCode::kNotFound) {
    return exchanged ? exchanged : rename_entry(*staging_, name, *out_, name, Replace::kYes);
  }
  if (exchanged.error().code != ErrorCode::kUnsupported) {
    return exchanged;
  }
  Status noted = note_replaced();
  return noted ? rename_entry(*staging_, name, *out_, name, Replace::kYes) : noted;
}

Status Transaction::note_replaced() const {
  const auto kind = out_->kind_of(options_.model_name);
  if (kind && *kind != EntryKind::kFile) {
    return {};  // a link has no data
  }
  const auto replaced = kind ? read_identity(*out_, options_.model_name) : fail(kind.error());
  if (!replaced) {  // its data would stay for ever
    return fail(replaced.error());
  }
  Status status = write_file(*staging_, std::string(kReplacedName), replaced_text(*replaced));
  return status ? sync_folder(*staging_) : status;
}

// What is not done here is done by the next save, as long as the staging folder is there to tell.
void Transaction::clear_up() {
  for (int attempt = 0; attempt < kClearUpAttempts; ++attempt) {
    try {
      RemovedData removed = remove_data_of_staged_models(*staging_);
      data_left_for_ = std::move(removed.left_for);
      if (removed.all_gone) {
        (void)out_->remove_tree(staging_name_);
        return;
      }
    } catch (const std::bad_alloc&) {
      continue;  // what the attempt held is free again
    }
  }
}

Status Transaction::publish_data() {
  std::vector<std::string> entries = data_entries();
  renamed_data_.reserve(entries.size());  // so that nothing fails between a rename and its record
  for (std::string& entry : entries) {
    if (Status status = rename_entry(*staging_, entry, *out_, entry, Replace::kNo); !status) {
      return status;
    }
    renamed_data_.push_back(std::move(entry));
  }
  return {};
}

Status Transaction::publish_new_folders() {
  for (ExtraFolder& extra : extra_) {
    if (extra.replaces) {
      continue;
    }
    Status status = rename_entry(*staging_, extra.name, *out_, extra.name, Replace::kNo);
    if (!status) {
      return status;
    }
    extra.renamed = true;
  }
  return {};
}

// What was replaced is in the staging folder then, and goes with it; what is there after an error
// stays until the next save can do it.
Status Transaction::exchange_old_folders() {
  for (const ExtraFolder& extra : extra_) {
    if (!extra.replaces) {
      continue;
    }
    const auto names = extra.folder->entries();
    Status status = names ? replace_folder(*staging_, extra.name, {names->begin(), names->end()})
                          : fail(names.error());
    if (!status) {
      return status;
    }
  }
  return {};
}

// Where folders cannot change places, files do, one after another: none of them is ever missing.
Status Transaction::replace_folder(const Directory& staging, const std::string& name,
                                   const EntryNames& files) const {
  Status status = exchange_entries(staging, name, *out_, name);
  if (status || (status.error().code != ErrorCode::kNotFound &&
                 status.error().code != ErrorCode::kUnsupported)) {
    return status;
  }
  const auto old = out_->open_folder(name);
  if (!old) {
    return old.error().code == ErrorCode::kNotFound
               ? rename_entry(staging, name, *out_, name, Replace::kNo)
               : fail(old.error());
  }
  if (!holds_only_inputs(*old)) {
    return fail(ErrorCode::kAlreadyExists, out_->child(name) +
                                               ": holds other things than recorded inputs; move it "
                                               "away");
  }
  status = remove_all_but(*old, files);
  const auto folder = status ? staging.open_folder(name) : fail(status.error());
  return folder ? replace_files(*folder, *old, files) : fail(folder.error());
}

// What is not in `folder` any more has been put in place before.
Status Transaction::replace_files(const Directory& folder, const Directory& old,
                                  const EntryNames& files) const {
  for (const std::string& file : files) {
    Status renamed = rename_entry(folder, file, old, file, Replace::kYes);
    if (!renamed && renamed.error().code != ErrorCode::kNotFound) {
      return renamed;
    }
  }
  return sync_folder(old);
}

void Transaction::roll_back() {
  reserve_.clear();
  for (const ExtraFolder& extra : extra_) {
    if (extra.renamed) {
      (void)out_->remove_tree(extra.name);
    }
  }
  for (auto entry = renamed_data_.rbegin(); entry != renamed_data_.rend(); ++entry) {
    (void)out_->remove_tree(*entry);
  }
  if (!staging_name_.empty()) {
    (void)out_->remove_tree(staging_name_);
  }
}

}  // namespace onnx_external
