#include "save/publish.h"

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/safe_path.h"
#include "base/try.h"
#include "save/manifest.h"
#include "save/old_data.h"
#include "save/other_models.h"
#include "save/recovery.h"

namespace onnx_external {
namespace {

// A single call or allocation that fails must not leave the old data behind.
constexpr int kClearUpAttempts = 2;

const Directory& manifest_folder(const Transaction& transaction) {
  return transaction.options().has_manifest_in_folder() ? transaction.data()
                                                        : transaction.staging();
}

// The locations that the new models refer to.
Result<FileSet> new_locations(const Transaction& transaction) {
  FileSet files;
  for (const std::string& model : transaction.options().models) {
    TRY_ASSIGN(const auto manifest, read_manifest(transaction.staging(),
                                                  manifest_location(transaction.options(), model)));
    for (const ManifestTensor& tensor : manifest.manifest.tensors) {
      files.insert(tensor.file);
    }
  }
  return files;
}

// Files of other tools are those to which replaced models without a manifest referred, and to which
// the new models do not refer.
void note_data_of_other_tools(const Directory& out, const std::string& model, const FileSet& in_use,
                              std::vector<std::string>& files) {
  const auto used = files_of_model(out, model);
  for (const std::string& file : used.value_or(FileSet())) {
    std::error_code ignored;
    if (!in_use.contains(file) && check_relative_location(file) &&
        std::filesystem::exists(out.path() / file, ignored)) {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
}

Result<Publication> plan_publication(const Transaction& transaction,
                                     std::span<const ModelIdentity> models, KeptData& kept) {
  const TransactionOptions& options = transaction.options();
  Publication publication{options.overwrite, data_entries(options), {}, {}};
  const std::string folder = options.has_folder() ? options.data_dir + "/" : "";
  for (const PlannedFile& file : options.files) {
    if (file.name != options.models.front()) {
      TRY_ASSIGN(publication.files.emplace_back(),
                 list_file(transaction.data(), file.name, folder + file.name));
    }
  }
  std::optional<FileSet> in_use;
  for (std::size_t i = 0; i < options.models.size(); ++i) {
    PublishedModel& model = publication.models.emplace_back();
    model.name = options.models[i];
    model.model = models[i];
    TRY_ASSIGN(model.manifest,
               list_file(manifest_folder(transaction), manifest_name(options, model.name),
                         manifest_location(options, model.name)));
    // If it cannot be read, its data would stay for ever.
    TRY_ASSIGN_IN("the model to be replaced cannot be read; move that model elsewhere",
                  model.replaced, identity_in_place(transaction.out(), model.name));
    if (!model.replaced) {
      continue;
    }
    if (!in_use) {
      TRY_ASSIGN(in_use, new_locations(transaction));
    }
    TRY_ASSIGN_IN("the data of the model to be replaced cannot be read; move that model elsewhere",
                  model.old_data,
                  list_data_of(transaction.out(), model.name, *model.replaced, *in_use));
    if (model.old_data.empty()) {
      note_data_of_other_tools(transaction.out(), model.name, *in_use, kept.of_other_tools);
    }
  }
  return publication;
}

Status move_data(Transaction& transaction, std::vector<std::string> entries) {
  const Directory& out = transaction.out();
  std::vector<std::string>& moved_data = transaction.moved_data();
  moved_data.reserve(entries.size());  // so that nothing fails between a rename and its record
  for (std::string& entry : entries) {
    const Status moved = move_entry(transaction.staging(), entry, out, entry);
    if (!moved && moved.error().code != ErrorCode::kAlreadyExists) {
      (void)out.remove_tree(entry);  // a part of it
    }
    TRY(moved);
    moved_data.push_back(std::move(entry));
  }
  return {};
}

// Tries twice to publish each model. After an error, the next save publishes the remaining models.
Status publish_models_after_first(const Transaction& transaction, const Publication& publication) {
  for (std::size_t i = 1; i < publication.models.size(); ++i) {
    if (!put_in_place(transaction.staging(), transaction.out(), publication, i)) {
      TRY(put_in_place(transaction.staging(), transaction.out(), publication, i));
    }
  }
  return {};
}

// If something fails here, the next save does it, according to the record.
void clear_up(const Transaction& transaction, const Publication& publication, KeptData& kept) {
  for (int attempt = 0; attempt < kClearUpAttempts; ++attempt) {
    try {
      RemovedData removed = remove_old_data(transaction.out(), publication);
      kept.for_models = std::move(removed.left_for);
      if (removed.all_gone) {
        remove_staging(transaction.out(), transaction.staging_name());
        return;
      }
    } catch (const std::bad_alloc&) {
      continue;  // the memory of this attempt is free again
    }
  }
}

}  // namespace

Status write_manifests(const Transaction& transaction, std::span<const std::string> manifests) {
  const TransactionOptions& options = transaction.options();
  for (std::size_t i = 0; i < manifests.size(); ++i) {
    TRY(write_file(manifest_folder(transaction), manifest_name(options, options.models[i]),
                   manifests[i], options.sync));
  }
  // A folder is synced once: only the per-tensor layout has its data in a folder of its own.
  TRY(options.has_folder() ? sync_folder(transaction.data(), options.sync) : Status());
  return sync_folder(transaction.staging(), options.sync);
}

Result<KeptData> publish(Transaction& transaction, std::span<const ModelIdentity> models) {
  const TransactionOptions& options = transaction.options();
  KeptData kept;
  TRY_ASSIGN(const auto what, plan_publication(transaction, models, kept));
  TRY(transaction.record().publish(what, options.sync));
  TRY(move_data(transaction, what.entries));
  TRY(sync_folder(transaction.out(), options.sync));
  TRY(options.sync == Sync::kFiles ? transaction.made().sync() : Status());
  TRY(put_in_place(transaction.staging(), transaction.out(), what, 0));
  // From here on nothing may be undone.
  transaction.commit();
  TRY_IN(
      "only some of the models are in place; the next save to the folder puts the other models in "
      "place",
      publish_models_after_first(transaction, what));
  TRY_IN(options.is_of_one() ? "the new model is in place, but may not survive a power failure"
                             : "the new models are in place, but may not survive a power failure",
         sync_folder(transaction.out(), options.sync));
  clear_up(transaction, what, kept);
  return kept;
}

}  // namespace onnx_external
