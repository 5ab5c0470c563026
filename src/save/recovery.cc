#include "save/recovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "save/other_models.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

// True when the folder belongs to this user and nobody else may write into it.
bool is_private(const Directory& folder) {
  struct stat info {};
  return ::fstat(folder.fd(), &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The owner of what a staging folder says.
uid_t owner_of(const Directory& staging) {
  struct stat info {};
  return ::fstat(staging.fd(), &info) == 0 ? info.st_uid : static_cast<uid_t>(-1);
}

// The progress that a save made with one of its models.
enum class ModelState : std::uint8_t {
  kStaged,  // its rename did not happen
  kInPlace,
  kReplaced,  // it was in place, and another one is there now, or none
};

Result<ModelState> model_state(const Directory& out, const Directory& staging,
                               const PublishedModel& model) {
  TRY_ASSIGN(const auto current, identity_in_place(out, model.name));
  TRY_ASSIGN(const auto staged, staging.kind_of(model.name));
  if (current == model.model && !(staged && model.replaced == model.model)) {
    return ModelState::kInPlace;
  }
  const bool is_old = model.replaced && current == model.replaced;
  return staged || is_old ? ModelState::kStaged : ModelState::kReplaced;
}

Result<std::vector<ModelState>> model_states(const Directory& out, const Directory& staging,
                                             const Publication& publication) {
  std::vector<ModelState> states;
  for (const PublishedModel& model : publication.models) {
    TRY_ASSIGN(states.emplace_back(), model_state(out, staging, model));
  }
  return states;
}

bool any_is(const std::vector<ModelState>& states, ModelState state) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

// Publishes the rest of a killed save. Skips models that are no longer in the staging folder, and,
// if the save was not allowed to replace a model, those whose name another model has taken since.
Status publish_rest(const Directory& staging, const Directory& out, const Publication& publication,
                    Sync sync) {
  for (std::size_t i = 0; i < publication.models.size(); ++i) {
    const PublishedModel& model = publication.models[i];
    const auto kind = out.kind_of(model.name);
    if (kind && *kind == EntryKind::kFolder) {
      continue;
    }
    const auto staged = read_identity(staging, model.name);
    if (!staged && staged.error().code != ErrorCode::kNotFound) {
      return fail(staged.error());
    }
    if (!staged || *staged != model.model) {
      continue;
    }
    Status placed = put_in_place(staging, out, publication, i);
    if (!placed && placed.error().code != ErrorCode::kAlreadyExists) {
      return placed;
    }
  }
  return sync_folder(out, sync);
}

std::vector<std::string> published_names(const Publication& publication) {
  std::vector<std::string> names;
  for (const PublishedModel& model : publication.models) {
    names.push_back(model.name);
  }
  return names;
}

// The files that any model of the folder refers to, the publication's included.
std::optional<FilesInUse> files_in_use(const Directory& out, const Publication& publication) {
  const std::vector<std::string> models = published_names(publication);
  auto files = files_of_other_models(out, models);
  for (std::size_t i = 0; files && i < models.size(); ++i) {
    const auto kind = out.kind_of(models[i]);
    const auto used = !kind || *kind == EntryKind::kFile ? files_of_model(out, models[i])
                                                         : std::optional(FileSet());
    if (!used) {
      return std::nullopt;
    }
    for (const std::string& file : *used) {
      files->emplace(file, models[i]);
    }
  }
  return files;
}

// Removes the listed data: the old data of models that were replaced, and the new data of models
// that were not published. Returns false if something could not be read or removed.
bool remove_listed_data(const Directory& out, const Directory& staging,
                        const Publication& publication) {
  const auto states = model_states(out, staging, publication);
  std::vector<ListedData> data;
  for (std::size_t i = 0; states && i < states->size(); ++i) {
    const PublishedModel& model = publication.models[i];
    if ((*states)[i] != ModelState::kStaged) {
      data.insert(data.end(), model.old_data.begin(), model.old_data.end());
    }
    if ((*states)[i] != ModelState::kInPlace) {
      data.push_back({model.manifest, publication.files});
    }
  }
  const bool all_gone =
      states && remove_data(out, data, owner_of(staging), files_in_use(out, publication)).all_gone;
  for (const std::string& entry : publication.entries) {
    (void)out.remove_empty_folder(entry);  // all of it that was moved is gone
  }
  return all_gone;
}

// Carries out the remaining steps of the killed save.
void finish(const Directory& out, const std::string& entry, const Directory& staging,
            const Publication& publication, Sync sync) {
  const auto states = model_states(out, staging, publication);
  if (!states) {
    return;
  }
  const bool is_committed = any_is(*states, ModelState::kInPlace);
  if (is_committed && any_is(*states, ModelState::kStaged) &&
      !(is_private(staging) && publish_rest(staging, out, publication, sync))) {
    return;
  }
  if (is_committed && !sync_folder(out, sync)) {
    return;
  }
  if (remove_listed_data(out, staging, publication)) {
    remove_staging(out, entry);
  } else if (!any_is(*states, ModelState::kStaged)) {
    (void)staging.remove_all_but({std::string(kRecordName)});
  }
}

}  // namespace

Result<std::vector<KilledSave>> recover(const Directory& out, std::span<const std::string> entries,
                                        Sync sync) {
  Status status;
  std::vector<KilledSave> unfinished;
  for (const std::string& entry : entries) {
    const auto staging = out.open_folder(entry);
    const auto record =
        staging ? read_record(*staging) : Result<std::optional<SaveRecord>>(std::nullopt);
    if (record && *record && (*record)->publication) {
      finish(out, entry, *staging, *(*record)->publication, sync);
    } else if (record) {
      const bool is_usable = *record && is_private(*staging);
      unfinished.push_back({entry, is_usable ? (*record)->job : std::string()});
    } else if (record.error().code == ErrorCode::kUnsupported) {
      status = fail(record.error());
    }
  }
  return status ? Result<std::vector<KilledSave>>(std::move(unfinished)) : fail(status.error());
}

std::vector<std::string> stale_entries(const Directory& out, std::span<const std::string> entries) {
  std::vector<std::string> stale;
  for (const std::string& entry : entries) {
    const auto staging = out.open_folder(entry);
    const auto record = staging ? read_record(*staging) : fail(staging.error());
    if (!record || !*record || !(*record)->publication) {
      continue;
    }
    const Publication& publication = *(*record)->publication;
    const auto states = model_states(out, *staging, publication);
    if (states && std::all_of(states->begin(), states->end(),
                              [](ModelState state) { return state == ModelState::kStaged; })) {
      stale.insert(stale.end(), publication.entries.begin(), publication.entries.end());
    }
  }
  return stale;
}

Status put_in_place(const Directory& staging, const Directory& out, const Publication& publication,
                    std::size_t model) {
  const std::string& name = publication.models[model].name;
  return rename_entry(staging, name, out, name,
                      publication.overwrite == Overwrite::kAllow ? Replace::kYes : Replace::kNo);
}

RemovedData remove_old_data(const Directory& out, const Publication& publication) {
  std::vector<ListedData> data;
  for (const PublishedModel& model : publication.models) {
    data.insert(data.end(), model.old_data.begin(), model.old_data.end());
  }
  return data.empty() ? RemovedData()
                      : remove_data(out, data, ::geteuid(),
                                    files_of_other_models(out, published_names(publication)));
}

void remove_staging(const Directory& out, const std::string& name) {
  if (const auto staging = out.open_folder(name)) {
    (void)staging->remove_file(std::string(kRecordName));
  }
  (void)out.remove_tree(name);
}

}  // namespace onnx_external
