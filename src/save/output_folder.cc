#include "save/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/new_folders.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/writer.h"
#include "save/file_names.h"
#include "save/other_models.h"

namespace onnx_external {
namespace {

constexpr std::string_view kStagingPrefix = ".save-external.";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr std::size_t kStagingDigits = 16;
// Leaves room for ".N" and for what file systems add.
constexpr std::size_t kMaxOutputNameBytes = 200;
constexpr std::string_view kSetModelSuffix = ".onnx";

Status check_output_name(std::string_view name, const char* what) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: {}; choose a plain name", what, quote(name), why));
  };
  if (Status plain = check_relative_location(name); !plain || name.find('/') != name.npos) {
    return refuse("is not the name of a file next to the model");
  }
  if (!is_utf8(name)) {
    return refuse("not UTF-8, but a location in a model has to be UTF-8");
  }
  if (name.size() > kMaxOutputNameBytes) {
    return refuse(fmt::format("longer than {} bytes", kMaxOutputNameBytes));
  }
  if (name.starts_with(kStagingPrefix)) {
    return refuse("is reserved for staging folders");
  }
  return {};
}

// The names of generations of a model's data: folders called `folder` or "<folder>.N", and files
// next to the model that are named after it or after `data`. The next N is chosen from them.
struct GenerationNames {
  std::string model;   // "model.onnx"
  std::string folder;  // "initializers"
  std::string data;    // PlanOptions::data_name
};

// The N of an entry of the output folder; nothing when it is not data.
std::optional<std::uint64_t> generation_of_entry(const GenerationNames& names,
                                                 const std::string& entry) {
  auto found = generation_of(entry, names.folder);
  for (const std::string& data :
       {names.data, std::string(), names.model + ".data", set_data_name(names.folder, "")}) {
    found = found ? found : generation_of_data_file(entry, data_name_of(names.model, data));
  }
  const auto stem = stem_of_manifest_file(entry);
  return found || !stem ? found : generation_of(*stem, data_stem(names.model));
}

bool is_link(const Directory& folder, const std::string& name) {
  struct stat info {};
  return ::fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

std::vector<std::string> staging_entries(const std::vector<std::string>& entries) {
  std::vector<std::string> staging;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(staging), is_staging_name);
  return staging;
}

// The entries of the output folder. Without those that killed saves left, the same save chooses the
// same name again.
Result<std::vector<std::string>> live_entries(const Directory& out) {
  TRY_ASSIGN(auto entries, out.entries());
  const auto staging = staging_entries(entries);
  for (const std::string& stale :
       staging.empty() ? std::vector<std::string>() : stale_entries(out, staging)) {
    std::erase(entries, stale);
  }
  return entries;
}

// The folder's own name when no entry is data.
std::string next_name(std::span<const GenerationNames> models,
                      const std::vector<std::string>& entries) {
  std::optional<std::uint64_t> newest;
  for (const GenerationNames& names : models) {
    for (const std::string& entry : entries) {
      newest = std::max(newest, generation_of_entry(names, entry));
    }
  }
  return newest ? fmt::format("{}.{}", models.front().folder, *newest + 1) : models.front().folder;
}

// Returns true for a file that other models refer to, and for a folder with such files.
bool is_in_use(const std::optional<FilesInUse>& files, const std::string& entry) {
  const std::string start = entry + "/";
  const auto file = files ? files->lower_bound(start) : FilesInUse::const_iterator();
  return files &&
         (files->contains(entry) || (file != files->end() && file->first.starts_with(start)));
}

// Opens the output folder. Nothing if there is none yet.
Result<std::optional<Directory>> open_if_there(const std::filesystem::path& out_dir) {
  auto out = Directory::open(out_dir);
  if (out) {
    return *std::move(out);
  }
  if (out.error().code == ErrorCode::kNotFound) {
    TRY(check_no_dangling_link(out_dir));
    return std::nullopt;
  }
  return fail(std::move(out).error());
}

Error in_the_way_error(const Directory& out, const std::string& entry) {
  return error_with(ErrorCode::kAlreadyExists, out.child(entry) + ": exists",
                    {{RemedyOption::kOverwrite, "", "saves beside it"}});
}

// Existing entries with the names that a first save would give to its data and manifests.
struct InTheWay {
  std::optional<std::string> entry;  // nobody's
  bool is_used = false;              // data of other models has this name, so the save gets the
                                     // next number
};

class FirstSave {
 public:
  FirstSave(const Directory& out, std::span<const GenerationNames> models, Layout layout)
      : out_(out), models_(models), layout_(layout) {}

  [[nodiscard]] InTheWay in_the_way(const std::vector<std::string>& entries) const {
    InTheWay found;
    std::optional<FilesInUse> in_use;
    for (const std::string& entry : entries) {
      const bool is_data = would_be_data(entry);
      if (is_data && !in_use) {
        const std::string& model = models_.front().model;
        in_use = files_of_other_models(out_, std::span(&model, is_alone() ? 1 : 0));
      }
      const bool is_used = is_data && is_in_use(in_use, entry);
      found.is_used = found.is_used || is_used;
      if (!found.entry && (would_be_manifest(entry) || (is_data && !is_used))) {
        found.entry = entry;
      }
    }
    return found;
  }

 private:
  [[nodiscard]] bool is_alone() const { return models_.size() == 1; }

  [[nodiscard]] bool would_be_data(const std::string& entry) const {
    if (layout_ == Layout::kPerTensor) {
      return entry == models_.front().folder;
    }
    const DataName data =
        data_name_of(is_alone() ? models_.front().model : "", models_.front().data);
    return layout_ != Layout::kLink && generation_of_data_file(entry, data) == 0U;
  }

  // The manifest of a model alone is in its data folder, if it has one.
  [[nodiscard]] bool would_be_manifest(const std::string& entry) const {
    const auto stem = stem_of_manifest_file(entry);
    return stem && !(is_alone() && layout_ == Layout::kPerTensor) &&
           std::any_of(models_.begin(), models_.end(), [&](const GenerationNames& names) {
             return *stem == data_stem(names.model);
           });
  }

  const Directory& out_;
  std::span<const GenerationNames> models_;
  Layout layout_;
};

Status check_model_entry(const Directory& out, const std::string& model_name, Overwrite overwrite) {
  TRY_ASSIGN(auto kind, out.kind_of(model_name));
  if (kind == EntryKind::kOther && overwrite == Overwrite::kRefuse) {
    TRY(check_no_dangling_link(out.path() / model_name));
  }
  if (kind == EntryKind::kOther && !is_link(out, model_name)) {
    return fail(ErrorCode::kAlreadyExists,
                out.child(model_name) + ": is not a regular file; move it elsewhere");
  }
  if (kind && overwrite == Overwrite::kRefuse) {
    return fail_with(ErrorCode::kAlreadyExists, out.child(model_name) + ": exists",
                     {{RemedyOption::kOverwrite, "", "replaces it"}});
  }
  if (kind == EntryKind::kFolder) {
    return fail(ErrorCode::kAlreadyExists,
                out.child(model_name) + ": is a folder; choose another name");
  }
  return {};
}

}  // namespace

// Another save that made the folder removes it when it fails: then it is made again.
Result<OutputFolder> open_output_folder(const std::filesystem::path& path, Sync sync) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    auto made = NewFolders::make(path);
    auto out = made ? Directory::open(path) : fail(made.error());
    if (!out && (out.error().code != ErrorCode::kNotFound || attempt == kAttempts)) {
      return fail(out.error());
    }
    if (!out) {
      continue;
    }
    const std::optional<bool> locked = out->try_lock();
    if (locked == false || (attempt == kAttempts && out->is_removed())) {
      made->keep();  // the other save is in them
      return fail(
          ErrorCode::kBusy,
          path.string() + ": another save is writing to this folder; wait until it has finished");
    }
    if (!out->is_removed()) {
      // Without locks, the other saves may be running.
      const auto entries = locked ? out->entries() : std::vector<std::string>();
      const auto staging = entries ? staging_entries(*entries) : std::vector<std::string>();
      std::vector<KilledSave> killed;
      if (!staging.empty()) {
        TRY_ASSIGN(killed, recover(*out, staging, sync));
      }
      return OutputFolder{*std::move(out), *std::move(made), std::move(killed)};
    }
  }
}

bool is_staging_name(std::string_view name) {
  if (name.size() != kStagingPrefix.size() + kStagingDigits + kStagingSuffix.size() ||
      !name.starts_with(kStagingPrefix) || !name.ends_with(kStagingSuffix)) {
    return false;
  }
  const std::string_view digits = name.substr(kStagingPrefix.size(), kStagingDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<std::string> random_staging_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return fail(errno_error(errno, "cannot get random bytes"));
  }
  return fmt::format("{}{:016x}{}", kStagingPrefix, number, kStagingSuffix);
}

Status check_models(const Directory& out, std::span<const std::string> models,
                    Overwrite overwrite) {
  for (const std::string& model : models) {
    TRY(check_model_entry(out, model, overwrite));
    const auto kind = out.kind_of(model);
    const auto files = kind && *kind ? files_of_other_models(out, {&model, 1}) : std::nullopt;
    const auto user = files ? files->find(model) : FilesInUse::const_iterator();
    if (files && user != files->end()) {
      return fail(ErrorCode::kAlreadyExists,
                  out.child(model) + ": contains data of the model " + quote(user->second) +
                      " in this folder; choose another name for the model");
    }
  }
  return {};
}

Status check_output_names(std::string_view model_name, std::string_view data_dir) {
  TRY(check_output_name(model_name, "model name"));
  TRY(check_output_name(data_dir, "data folder"));
  if (ascii_lower(model_name) == ascii_lower(data_dir)) {
    return fail(ErrorCode::kInvalidArgument, "the model and its data folder have the same name " +
                                                 quote(model_name) + "; choose different names");
  }
  return {};
}

Status check_data_name(std::string_view model_name, std::string_view data_dir,
                       std::string_view data_name, Layout layout) {
  if (data_name.empty()) {
    return {};
  }
  if (layout != Layout::kSingle && layout != Layout::kShards) {
    return fail_with(ErrorCode::kInvalidArgument,
                     "the name of a data file, " + quote(data_name) +
                         ", applies only to data in files next to the model; leave it out",
                     {{RemedyOption::kLayout, "single", "puts all data into one file"}});
  }
  TRY(check_output_name(data_name, "data file"));
  auto fault = data_name_fault(model_name, data_name);
  if (!fault && ascii_lower(data_name) == ascii_lower(data_dir)) {
    fault = "is the data folder's";
  }
  if (fault) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("data file {}: the name {}; choose another name", quote(data_name), *fault));
  }
  return {};
}

Status check_set_names(std::span<const std::string> model_names, std::string_view data_dir) {
  if (model_names.size() > kMaxSetModels) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} models; at most {} can be saved at once", model_names.size(),
                            kMaxSetModels));
  }
  std::map<std::string, std::string_view> folded;
  for (const std::string& name : model_names) {
    TRY(check_output_names(name, data_dir));
    if (model_names.size() == 1) {
      return {};
    }
    const std::string lower = ascii_lower(name);
    if (!lower.ends_with(kSetModelSuffix)) {
      return fail(ErrorCode::kInvalidArgument,
                  "model name " + quote(name) +
                      ": must end with .onnx if several models share data, because later saves "
                      "look for models with such names before they remove data");
    }
    if (const auto [duplicate, is_new] = folded.emplace(lower, name); !is_new) {
      return fail(ErrorCode::kInvalidArgument,
                  duplicate->second == name
                      ? "two models are named " + quote(name) + "; choose different names for them"
                      : "the model names " + quote(duplicate->second) + " and " + quote(name) +
                            " are the same on some file systems; choose different names");
    }
  }
  return {};
}

Result<std::string> choose_data_dir(const std::filesystem::path& out_dir,
                                    std::span<const std::string> model_names,
                                    std::string_view data_dir, Overwrite overwrite, Layout layout,
                                    std::string_view data_name) {
  TRY(check_set_names(model_names, data_dir));
  for (const std::string& model_name : model_names) {
    TRY(check_data_name(model_name, data_dir, data_name, layout));
  }
  std::string name(data_dir);
  if (out_dir.empty()) {
    return name;
  }
  TRY_ASSIGN(const auto out, open_if_there(out_dir));
  if (!out) {
    return name;
  }
  const std::string data =
      model_names.size() == 1 ? std::string(data_name) : set_data_name(data_dir, data_name);
  std::vector<GenerationNames> models;
  for (const std::string& model_name : model_names) {
    TRY(check_model_entry(*out, model_name, overwrite));
    models.push_back({model_name, name, data});
  }
  TRY_ASSIGN(const auto entries, live_entries(*out));
  if (overwrite == Overwrite::kAllow) {
    return next_name(models, entries);
  }
  const InTheWay found = FirstSave(*out, models, layout).in_the_way(entries);
  if (found.is_used) {
    return next_name(models, entries);
  }
  return found.entry ? fail(in_the_way_error(*out, *found.entry)) : Result<std::string>(name);
}

}  // namespace onnx_external
