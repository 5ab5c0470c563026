#include "save/predecessors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/try.h"
#include "save/journal.h"
#include "save/other_models.h"
#include "save/output_names.h"
#include "save/publish_set.h"
#include "save/replaced.h"
#include "save/set_note.h"

namespace onnx_external {
namespace {

// True when the folder belongs to this user and nobody else may write into it.
bool is_private(const Directory& folder) {
  struct stat info {};
  return ::fstat(folder.fd(), &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The models that are in the staging folder, or were.
struct StagedModels {
  std::vector<ModelIdentity> found;
  bool all_read = true;
};

StagedModels staged_models(const Directory& staging, const std::string& model_name) {
  StagedModels models;
  for (const std::string& name : {model_name, std::string(kReplacedModelName)}) {
    const auto kind = staging.kind_of(name);
    if (const auto model = identify(staging, name)) {
      models.found.push_back(*model);
    } else {
      models.all_read = models.all_read && kind && *kind != EntryKind::kFile;
    }
  }
  const auto note = read_replaced(staging);
  models.all_read = models.all_read && note;
  if (note && *note) {
    models.found.push_back(**note);
  }
  return models;
}

// Leaves only what tells whose data must be removed. A model alone gets another name, because under
// its own the next save of the job would resume, with data of the same names.
void reduce_to_evidence(const Directory& staging, const std::optional<SetNote>& note,
                        const std::string& model_name) {
  EntryNames evidence{std::string(kSetNoteName), std::string(kReplacedName)};
  if (note) {
    for (const NotedModel& model : note->models) {
      evidence.insert(model.name);
    }
  } else {
    const std::string renamed(kReplacedModelName);
    (void)rename_entry(staging, model_name, staging, renamed, Replace::kYes);
    evidence.insert({model_name, renamed});
  }
  (void)remove_all_but(staging, evidence);
}

bool is_committed(const Directory& out, const std::optional<SetNote>& note) {
  return note && published_models(out, *note) > 0;
}

// The files of all these models; nothing when those of one are not known.
std::optional<FileSet> files_in_use(const Directory& out, std::span<const GenerationNames> models) {
  FileSet files;
  for (const GenerationNames& names : models) {
    auto some = current_files(out, names, identify(out, names.model));
    if (!some) {
      return std::nullopt;
    }
    files.insert(some->begin(), some->end());
  }
  return files;
}

}  // namespace

// The staging folders of killed saves, since this save holds the lock. None where locks do not
// work.
std::vector<std::string> Predecessors::staging_folders() const {
  auto entries = out_.try_lock() == true ? out_.entries() : std::vector<std::string>();
  if (!entries) {
    return {};
  }
  std::erase_if(*entries, [](const std::string& entry) { return !is_staging_name(entry); });
  return *std::move(entries);
}

std::string Predecessors::find_job() const {
  if (options_.job.empty()) {
    return {};
  }
  for (const std::string& entry : staging_folders()) {
    const auto staging = out_.open_folder(entry);
    if (staging && is_private(*staging) && has_journal_of(*staging, options_.job)) {
      return entry;
    }
  }
  return {};
}

// The models that the staging folder is of: those of its note, or those of this save.
std::vector<GenerationNames> Predecessors::models_of(const std::optional<SetNote>& note) const {
  if (!note) {
    return names_;
  }
  std::vector<GenerationNames> models;
  for (const NotedModel& model : note->models) {
    models.push_back({model.name, note->data_dir});
  }
  return models;
}

bool Predecessors::settle(const std::string& staging_name) const {
  const auto staging = out_.open_folder(staging_name);
  const auto note = staging ? read_set_note(*staging) : fail(staging.error());
  return note && !is_committed(out_, *note) &&
         remove_data_of_staged_models(*staging, Whose::kOthers).all_gone;
}

void Predecessors::remove_stale_staging(std::string_view own) const {
  for (const std::string& entry : staging_folders()) {
    if (entry != own) {
      clear(entry);
    }
  }
}

void Predecessors::finish_sets() const {
  for (const std::string& entry : staging_folders()) {
    const auto staging = out_.open_folder(entry);
    const auto note = staging ? read_set_note(*staging) : fail(staging.error());
    if (note && is_committed(out_, *note)) {
      clear(entry);
    }
  }
}

void Predecessors::clear(const std::string& entry) const {
  const auto staging = out_.open_folder(entry);
  if (!staging) {
    (void)out_.remove_tree(entry);
    return;
  }
  const auto note = read_set_note(*staging);
  if (!note || !publish_rest(*staging, *note)) {
    return;  // it may hold files of the current models
  }
  if (!remove_data_of_staged_models(*staging, Whose::kOthers).all_gone) {
    reduce_to_evidence(*staging, *note, options_.model_name);
    return;
  }
  (void)out_.remove_tree(entry);
}

// Puts in place what is left of a set that was committed.
bool Predecessors::publish_rest(const Directory& staging,
                                const std::optional<SetNote>& note) const {
  return !is_committed(out_, note) ||
         (is_private(staging) && SetPublisher(staging, out_, *note, options_.sync).publish_left());
}

RemovedData Predecessors::remove_data_of_staged_models(const Directory& staging,
                                                       Whose whose) const {
  const auto note = read_set_note(staging);
  if (!note) {
    return {};
  }
  const std::vector<GenerationNames> models = models_of(*note);
  RemovedData removed{true, {}};
  for (std::size_t i = 0; i < models.size(); ++i) {
    StagedModels staged = staged_models(staging, models[i].model);
    if (*note && (**note).models[i].replaced) {
      staged.found.push_back(*(**note).models[i].replaced);
    }
    removed.all_gone = removed.all_gone && staged.all_read;
    const std::string newest =
        whose == Whose::kOwn ? manifest_entry(options_, models[i].model) : std::string();
    const auto current = staged.found.empty() ? std::nullopt : identify(out_, models[i].model);
    for (const ModelIdentity& gone : staged.found) {
      if (gone == current) {
        removed.all_gone = remove_twin_manifests(out_, models[i], gone, newest) && removed.all_gone;
        continue;
      }
      const auto in_use = files_in_use(out_, models);
      const auto others = files_of_other_models(out_, models[i].model);
      RemovedData data = in_use && others ? remove_data_of(out_, models[i], gone, *in_use, *others)
                                          : RemovedData();
      removed.all_gone = removed.all_gone && data.all_gone;
      std::move(data.left_for.begin(), data.left_for.end(), std::back_inserter(removed.left_for));
    }
  }
  return removed;
}

void finish_sets(const std::filesystem::path& out_dir, Sync sync) {
  const auto out = Directory::open(out_dir);
  const auto entries = out ? out->entries() : fail(out.error());
  const bool any = entries && std::any_of(entries->begin(), entries->end(), is_staging_name);
  if (any && out->try_lock() == true) {
    TransactionOptions options;
    options.sync = sync;
    Predecessors(*out, options).finish_sets();
  }
}

}  // namespace onnx_external
