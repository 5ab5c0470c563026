#include "save/output_names.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/new_folders.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/writer.h"
#include "save/generations.h"

namespace onnx_external {
namespace {

constexpr std::string_view kStagingPrefix = ".save-external.";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr std::size_t kStagingDigits = 16;
// Leaves room for ".N" and for what file systems add.
constexpr std::size_t kMaxOutputNameBytes = 200;

Status check_output_name(std::string_view name, const char* what) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: {}; give a plain name", what, quote(name), why));
  };
  if (Status plain = check_relative_location(name); !plain || name.find('/') != name.npos) {
    return refuse("is no name of a file beside the model");
  }
  if (!is_utf8(name)) {
    return refuse("not UTF-8, which a location in a model must be");
  }
  if (name.size() > kMaxOutputNameBytes) {
    return refuse(fmt::format("longer than {} bytes", kMaxOutputNameBytes));
  }
  if (name.starts_with(kStagingPrefix)) {
    return refuse("is kept for staging folders");
  }
  return {};
}

bool is_link(const Directory& folder, const std::string& name) {
  struct stat info {};
  return ::fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

// Entries of the output folder that belong to models which killed saves never put in place.
std::set<std::string> entries_of_the_dead(const Directory& out, const GenerationNames& names,
                                          const std::vector<std::string>& entries) {
  std::set<std::string> dead;
  for (const std::string& entry : entries) {
    if (!is_staging_name(entry)) {
      continue;
    }
    const auto staging = out.open_folder(entry);
    const auto staged = staging ? identify(*staging, names.model) : std::nullopt;
    if (staged && staged != identify(out, names.model)) {
      dead.merge(entries_of(out, names, *staged));
    }
  }
  return dead;
}

// The folder's own name when no entry is data.
std::string next_name(const GenerationNames& names, const std::vector<std::string>& entries) {
  const auto newest = newest_generation(names, entries);
  return newest ? fmt::format("{}.{}", names.folder, *newest + 1) : names.folder;
}

// True when another model of the folder has its data in the data folder.
bool is_of_other_model(const Directory& out, const GenerationNames& names) {
  const auto files = files_of_other_models(out, names.model);
  const std::string start = names.folder + "/";
  const auto file = files ? files->lower_bound(start) : FilesInUse::const_iterator();
  return files && file != files->end() && file->first.starts_with(start);
}

}  // namespace

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

Status check_model_entry(const Directory& out, const std::string& model_name, Overwrite overwrite) {
  TRY_ASSIGN(auto kind, out.kind_of(model_name));
  if (kind == EntryKind::kOther && overwrite == Overwrite::kRefuse) {
    TRY(check_no_dangling_link(out.path() / model_name));
  }
  if (kind == EntryKind::kOther && !is_link(out, model_name)) {
    return fail(ErrorCode::kAlreadyExists,
                out.child(model_name) + ": is not a regular file; move it away");
  }
  if (kind && overwrite == Overwrite::kRefuse) {
    return fail_with(ErrorCode::kAlreadyExists, out.child(model_name) + ": exists",
                     {{"overwrite", "", "replaces it"}});
  }
  if (kind == EntryKind::kFolder) {
    return fail(ErrorCode::kAlreadyExists, out.child(model_name) + ": is a folder");
  }
  return {};
}

Status check_output_names(std::string_view model_name, std::string_view data_dir) {
  TRY(check_output_name(model_name, "model name"));
  TRY(check_output_name(data_dir, "data folder"));
  if (ascii_lower(model_name) == ascii_lower(data_dir)) {
    return fail(ErrorCode::kInvalidArgument, "the model and its data folder have the same name " +
                                                 quote(model_name) + "; give different ones");
  }
  return {};
}

Result<std::string> choose_data_dir(const std::filesystem::path& out_dir,
                                    std::string_view model_name, std::string_view data_dir,
                                    Overwrite overwrite, Layout layout) {
  TRY(check_output_names(model_name, data_dir));
  std::string name(data_dir);
  auto out = Directory::open(out_dir);
  if (!out) {
    if (out.error().code == ErrorCode::kNotFound) {
      TRY(check_no_dangling_link(out_dir));
      return name;
    }
    return fail(std::move(out).error());
  }
  TRY(check_model_entry(*out, std::string(model_name), overwrite));
  TRY_ASSIGN(auto entries, out->entries());
  const GenerationNames names{std::string(model_name), name};
  // Without the entries of killed saves, the same save chooses the same name again.
  const auto dead = entries_of_the_dead(*out, names, entries);
  std::erase_if(entries, [&](const std::string& entry) { return dead.contains(entry); });
  if (overwrite == Overwrite::kAllow) {
    return next_name(names, entries);
  }
  std::optional<std::string> in_the_way;
  if (layout != Layout::kPerTensor) {
    in_the_way = first_generation_file(names, entries);
  } else if (std::binary_search(entries.begin(), entries.end(), name)) {
    if (is_of_other_model(*out, names)) {
      return next_name(names, entries);
    }
    in_the_way = name;
  }
  if (in_the_way) {
    return fail_with(ErrorCode::kAlreadyExists, out->child(*in_the_way) + ": exists",
                     {{"overwrite", "", "saves beside it"}});
  }
  return name;
}

}  // namespace onnx_external
