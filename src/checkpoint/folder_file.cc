#include "checkpoint/folder_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/formats/shard_index.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kMember = "transformers_weights";
constexpr std::string_view kVersions = "configuration_files";
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxConfigDepth = 64;
constexpr std::size_t kMaxListed = 8;

// In the order in which transformers looks for them. The index of a file comes just after it.
constexpr std::array<std::string_view, 4> kUsualFiles = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json"};

// "model.fp16.safetensors", "model.safetensors.index.fp16.json"
std::string with_variant(std::string_view name, const std::string& variant) {
  const std::size_t dot = name.rfind('.');
  return variant.empty() ? std::string(name)
                         : fmt::format("{}.{}{}", name.substr(0, dot), variant, name.substr(dot));
}

// In a pattern, '#' matches a digit.
bool matches(std::string_view text, std::string_view pattern) {
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(),
                    [](char c, char p) { return p == '#' ? c >= '0' && c <= '9' : c == p; });
}

// "model-00001-of-00002" is one of several; nothing else is.
bool is_one_of_several(std::string_view stem) {
  constexpr std::string_view kPlace = "-#####-of-#####";
  return stem.size() > kPlace.size() && matches(stem.substr(stem.size() - kPlace.size()), kPlace) &&
         !stem.ends_with("-of-00001");
}

// The variant in the name of a usual file; empty if there is none.
std::string_view variant_in(std::string_view name) {
  for (const std::string_view usual : kUsualFiles) {
    const std::size_t dot = usual.rfind('.');
    const std::string_view tail = usual.substr(dot);
    if (name.size() > usual.size() + 1 && name.starts_with(usual.substr(0, dot + 1)) &&
        name.ends_with(tail)) {
      const std::string_view variant = name.substr(dot + 1, name.size() - dot - 1 - tail.size());
      return is_one_of_several(variant) ? std::string_view() : variant;
    }
  }
  return {};
}

// As Python's isfile(): links are followed, wherever they lead; nothing is opened.
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::status(path, ignored));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Result<std::vector<std::string>> sorted_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    return fail(ErrorCode::kIo, folder.string() + ": cannot list the folder: " + error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// transformers reads such shards before all other files, and needs several processes to write them.
Status check_for_trained_shards(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (matches(name, "shard-#####-model-#####-of-#####.safetensors")) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format(
              "{}: {} is a shard that distributed training wrote, and transformers prefers it to "
              "all other files; load the model and save it again, or pass the file to read",
              folder.string(), quote(name)));
    }
  }
  return {};
}

// --- config.json -------------------------------------------------------------------------------

// Most configurations have no such member and need not be parsed. This matters because parsing is
// stricter than Python's: it rejects Infinity, for example. A name can also be written with
// escapes.
bool may_have(std::string_view member, std::string_view text) {
  if (text.find(member) != std::string_view::npos) {
    return true;
  }
  for (std::size_t at = text.find("\\u00"); at < text.size(); at = text.find("\\u00", at + 1)) {
    if (at + 4 < text.size() && text[at + 4] >= '5' && text[at + 4] <= '7') {
      return true;
    }
  }
  return false;
}

// The location that the value of transformers_weights names.
Result<std::string> location_in(const Json& value) {
  const std::string* const given = value.string();
  if (given == nullptr) {
    return fail(ErrorCode::kCorrupt, "is not the name of a file");
  }
  if (!given->ends_with(".safetensors") && !given->ends_with(".safetensors.index.json") &&
      *given != "adapter_model.bin") {
    return fail(ErrorCode::kUnsupported,
                "names " + quote(*given) +
                    ", which is neither *.safetensors nor *.safetensors.index.json; transformers "
                    "also rejects it");
  }
  std::string_view location = *given;
  while (location.starts_with("./")) {
    location.remove_prefix(2);
  }
  TRY(check_relative_location(location));
  return std::string(location);
}

// Fails with kAmbiguous if a configuration other than config.json may name weights, because the
// version of transformers determines which configuration is used.
Status check_versions(const fs::path& folder, const Json& config) {
  const Json* const listed = config.find(kVersions);
  const JsonArray* const names = listed == nullptr ? nullptr : listed->array();
  for (const Json& entry : names == nullptr ? JsonArray() : *names) {
    const std::string* const name = entry.string();
    if (name == nullptr || *name == kConfig || !check_plain_name(*name) ||
        !is_file(folder / *name)) {
      continue;
    }
    TRY_ASSIGN(const auto file, open_shard(folder, *name));
    TRY_ASSIGN(const auto text, read_file(*file, kMaxConfigBytes));
    if (may_have(kMember, text)) {
      return fail(ErrorCode::kAmbiguous,
                  fmt::format("{}: may refer to {}, which only some versions of transformers use; "
                              "pass the file to read",
                              file->name(), kMember));
    }
  }
  return {};
}

// The location that config.json names; none if it names none, or is not there.
Result<std::optional<std::string>> named_weights(const fs::path& folder) {
  if (!is_file(folder / kConfig)) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto file, open_shard(folder, kConfig));
  TRY_ASSIGN(const auto text, read_file(*file, kMaxConfigBytes));
  if (!may_have(kMember, text) && !may_have(kVersions, text)) {
    return std::nullopt;
  }
  TRY_ASSIGN_IN(file->name(), const auto config, parse_json(text, kMaxConfigDepth));
  TRY(check_versions(folder, config));
  const Json* const value = config.find(kMember);
  if (value == nullptr || std::holds_alternative<std::nullptr_t>(value->value)) {
    return std::nullopt;
  }
  TRY_ASSIGN_IN(file->name() + ": " + std::string(kMember), auto location, location_in(*value));
  return location;
}

Result<FolderFile> open_named(const fs::path& folder, const std::string& location,
                              const std::string& variant) {
  auto file = location.find('/') == std::string::npos ? open_shard(folder, location)
                                                      : open_beneath(folder, location);
  if (!file) {
    return fail_in(
        (folder / kConfig).string() + ": " + std::string(kMember) + " names " + quote(location),
        std::move(file).error());
  }
  std::string note;
  if (!variant.empty()) {
    note = fmt::format("{}: {} names {}, which is read for any variant, as in transformers",
                       (folder / kConfig).string(), kMember, quote(location));
  }
  return FolderFile{*std::move(file), std::move(note)};
}

// --- the usual names ---------------------------------------------------------------------------

// Returns a note about files that users may expect to be read instead of `names[taken]`.
std::string note_of(const fs::path& folder, const std::array<std::string, 4>& names,
                    std::size_t taken) {
  const auto text = [&](const std::string& other, std::string_view what, std::string_view why) {
    return fmt::format("{} is read, as in transformers; {}, {}, is not{}",
                       (folder / names[taken]).string(), quote(other), what, why);
  };
  for (std::size_t i = 0; i < taken; ++i) {
    if (is_there(folder / names[i])) {
      return text(names[i], "which is not a file or is a broken link", "");
    }
  }
  const bool is_single = taken % 2 == 0;
  return is_single && is_there(folder / names[taken + 1])
             ? text(names[taken + 1], "the shard index next to it",
                    " (remove it if it is obsolete)")
             : "";
}

tl::unexpected<Error> only_variants(const fs::path& folder, const std::vector<std::string>& files,
                                    const std::string& missing) {
  std::vector<Remedy> remedies;
  for (const std::string& file : files) {
    remedies.push_back(
        {RemedyOption::kVariant, std::string(variant_in(file)), "uses " + quote(file)});
  }
  return fail_with(ErrorCode::kNotFound,
                   fmt::format("{}: {}; the folder has only files of variants: {}", folder.string(),
                               missing, quote_list(files, kMaxListed)),
                   std::move(remedies));
}

// Returns the reason why none of the usual files was found; no error if the folder may be of
// another kind.
Status check_missing(const fs::path& folder, const std::vector<std::string>& all,
                     const std::array<std::string, 4>& names, const std::string& variant) {
  for (const std::string& name : names) {
    if (is_there(folder / name)) {
      std::error_code ignored;
      const bool is_link = fs::is_symlink(fs::symlink_status(folder / name, ignored));
      return fail(
          is_link ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
          (folder / name).string() +
              (is_link ? ": a link to a file that does not exist; was the download interrupted?"
                       : ": is not a regular file"));
    }
  }
  std::vector<std::string> variants;
  std::copy_if(all.begin(), all.end(), std::back_inserter(variants),
               [](const std::string& name) { return !variant_in(name).empty(); });
  const std::string missing =
      variant.empty()
          ? fmt::format("no file {}", quote(names[0]))
          : fmt::format("no file for the variant {} (such as {})", quote(variant), quote(names[0]));
  if (!variants.empty()) {
    return only_variants(folder, variants, missing);
  }
  return variant.empty() ? Status()
                         : fail(ErrorCode::kNotFound,
                                folder.string() + ": " + missing + "; leave the variant out");
}

}  // namespace

Result<std::optional<FolderFile>> transformers_file(const fs::path& folder,
                                                    const std::string& variant) {
  TRY_ASSIGN(const auto all, sorted_names(folder));
  TRY(check_for_trained_shards(folder, all));
  TRY_ASSIGN(const auto location, named_weights(folder));
  if (location) {
    return open_named(folder, *location, variant);
  }
  std::array<std::string, kUsualFiles.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = with_variant(kUsualFiles[i], variant);
    TRY_IN(folder.string() + ": variant", check_plain_name(names[i]));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_file(folder / names[i])) {
      TRY_ASSIGN(auto file, open_shard(folder, names[i]));
      return FolderFile{std::move(file), note_of(folder, names, i)};
    }
  }
  TRY(check_missing(folder, all, names, variant));
  return std::nullopt;
}

Status check_is_whole(const fs::path& folder, const std::string& name) {
  if (!is_one_of_several(std::string_view(name).substr(0, name.rfind('.')))) {
    return {};
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: {} is one of several shards, but their index is missing; download "
                          "the checkpoint again, or pass the files to read",
                          folder.string(), quote(name)));
}

}  // namespace onnx_external
