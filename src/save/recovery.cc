#include "save/recovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/try.h"
#include "save/other_models.h"
#include "save/output_names.h"
#include "save/staging.h"

namespace onnx_external {
namespace {

// True when the folder belongs to this user and nobody else may write into it.
bool is_private(const Directory& folder) {
  struct stat info {};
  return ::fstat(folder.fd(), &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The staging folders of killed saves, if this save holds the lock. None where locks do not work.
std::vector<std::string> staging_folders(const Directory& out) {
  auto entries = out.try_lock() == true ? out.entries() : std::vector<std::string>();
  if (!entries) {
    return {};
  }
  std::erase_if(*entries, [](const std::string& entry) { return !is_staging_name(entry); });
  return *std::move(entries);
}

bool is_staged(const Directory& staging, const PublishedModel& model) {
  return identify(staging, model.name) == model.model;
}

// Whether a model is in place; an error when one cannot be read.
Result<bool> is_committed(const Directory& out, const Publication& publication) {
  bool any = false;
  for (const PublishedModel& model : publication.models) {
    TRY_ASSIGN(const auto current, identity_in_place(out, model.name));
    any = any || current == model.model;
  }
  return any;
}

// Publishes the rest of a killed save. Skips models that are in place already, models that are no
// longer in the staging folder, and, if the save was not allowed to replace a model, those whose
// name another model has taken since.
Status publish_rest(const Directory& staging, const Directory& out, const Publication& publication,
                    Sync sync) {
  for (std::size_t i = 0; i < publication.models.size(); ++i) {
    const PublishedModel& model = publication.models[i];
    const auto kind = out.kind_of(model.name);
    if (identify(out, model.name) == model.model || (kind && *kind == EntryKind::kFolder)) {
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

std::vector<GenerationNames> names_of(const Publication& publication) {
  std::vector<GenerationNames> names;
  for (const PublishedModel& model : publication.models) {
    names.push_back({model.name, publication.folder, publication.data_name});
  }
  return names;
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

// Finishes a committed save: does the steps that the killed save did not reach.
void finish(const Directory& out, const std::string& entry, const Directory& staging,
            const Publication& publication, Sync sync) {
  const auto committed = is_committed(out, publication);
  if (!committed ||
      (*committed && !(is_private(staging) && publish_rest(staging, out, publication, sync)))) {
    return;
  }
  for (std::size_t i = 0; !*committed && i < publication.data.size(); ++i) {
    (void)out.remove_empty_folder(publication.data[i]);  // move_entry() has made it, and no more
  }
  if (remove_stale_data(out, publication).all_gone) {
    (void)out.remove_tree(entry);
  } else {
    (void)remove_all_but(staging, {std::string(kRecordName)});
  }
}

}  // namespace

Status recover(const Directory& out, Sync sync) {
  Status status;
  for (const std::string& entry : staging_folders(out)) {
    const auto staging = out.open_folder(entry);
    const auto record = staging ? read_record(*staging) : fail(staging.error());
    if (!record && record.error().code == ErrorCode::kUnsupported) {
      status = fail(record.error());
    } else if (record && *record && (*record)->publication) {
      finish(out, entry, *staging, *(*record)->publication, sync);
    }
  }
  return status;
}

Status recover(const std::filesystem::path& out_dir, Sync sync) {
  const auto out = Directory::open(out_dir);
  const auto entries = out ? out->entries() : fail(out.error());
  const bool any = entries && std::any_of(entries->begin(), entries->end(), is_staging_name);
  return any ? recover(*out, sync) : Status();
}

std::string find_job(const Directory& out, const std::string& job) {
  for (const std::string& entry : job.empty() ? std::vector<std::string>() : staging_folders(out)) {
    const auto staging = out.open_folder(entry);
    const auto record =
        staging && is_private(*staging) ? read_record(*staging) : fail(ErrorCode::kNotFound, "");
    if (record && *record && (*record)->job == job && !(*record)->publication) {
      return entry;
    }
  }
  return {};
}

void remove_unfinished(const Directory& out, std::string_view own) {
  for (const std::string& entry : staging_folders(out)) {
    const auto staging = out.open_folder(entry);
    const auto record =
        staging ? read_record(*staging) : Result<std::optional<SaveRecord>>(std::nullopt);
    if (entry != own && record && (!*record || !(*record)->publication)) {
      (void)out.remove_tree(entry);
    }
  }
}

std::vector<std::string> stale_entries(const Directory& out) {
  std::vector<std::string> stale;
  const auto entries = out.entries();
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const auto staging = is_staging_name((*entries)[i]) ? out.open_folder((*entries)[i])
                                                        : fail(ErrorCode::kNotFound, "");
    const auto record = staging ? read_record(*staging) : fail(staging.error());
    if (!record || !*record || !(*record)->publication) {
      continue;
    }
    const Publication& publication = *(*record)->publication;
    const auto& models = publication.models;
    // Without its models, it is a save whose data could not be removed.
    const auto committed = is_committed(out, publication);
    if (committed && !*committed &&
        std::all_of(models.begin(), models.end(),
                    [&](const PublishedModel& model) { return is_staged(*staging, model); })) {
      stale.insert(stale.end(), publication.data.begin(), publication.data.end());
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

RemovedData remove_stale_data(const Directory& out, const Publication& publication) {
  const std::vector<GenerationNames> models = names_of(publication);
  // A model that replaces an equal one has only duplicates to remove, for which no file list is
  // read.
  const bool any_differs =
      std::any_of(publication.models.begin(), publication.models.end(),
                  [](const PublishedModel& model) { return model.replaced != model.model; });
  const auto in_use = any_differs ? files_in_use(out, models) : std::nullopt;
  RemovedData removed{true, {}};
  for (std::size_t i = 0; i < models.size(); ++i) {
    const PublishedModel& model = publication.models[i];
    if (model.replaced == model.model) {
      removed.all_gone = remove_duplicate_manifests(out, models[i], model.model, model.manifest) &&
                         removed.all_gone;
      continue;
    }
    const auto current = identity_in_place(out, model.name);
    const auto others = files_of_other_models(out, model.name);
    for (const auto& state : {std::optional(model.model), model.replaced}) {
      if (!state || (current && state == *current)) {
        continue;
      }
      RemovedData data = current && in_use && others
                             ? remove_data_of(out, models[i], *state, *in_use, *others)
                             : RemovedData();
      removed.all_gone = removed.all_gone && data.all_gone;
      std::move(data.left_for.begin(), data.left_for.end(), std::back_inserter(removed.left_for));
    }
  }
  return removed;
}

}  // namespace onnx_external
