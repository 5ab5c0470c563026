#include "save/file_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "save/manifest.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxGenerationDigits = 18;
constexpr std::string_view kModelSuffix = ".onnx";
constexpr std::string_view kDataSuffix = ".data";
constexpr std::string_view kManifestSuffix = ".manifest.json";
// Clients that find data by the name of the graph expect "model.onnx_data", "model.onnx_data_1",
// ...
constexpr std::string_view kCountedSuffix = ".onnx_data";
constexpr std::string_view kShardForm = "-00000-of-00000";  // any digit for a 0

bool has_form(std::string_view text, std::string_view form) {
  return std::equal(text.begin(), text.end(), form.begin(), form.end(), [](char c, char wanted) {
    return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
  });
}

}  // namespace

std::optional<std::uint64_t> generation_of(std::string_view name, std::string_view base) {
  if (!name.starts_with(base)) {
    return std::nullopt;
  }
  std::string_view rest = name.substr(base.size());
  if (rest.empty()) {
    return 0;
  }
  if (rest.size() < 2 || rest.size() > kMaxGenerationDigits + 1 || rest[0] != '.' ||
      rest[1] == '0' || rest.find_first_not_of("0123456789", 1) != std::string_view::npos) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
  return number;
}

namespace {

// "initializers" of "initializers" and of "initializers.12".
std::string_view generation_base(std::string_view data_dir) {
  const std::string_view base = data_dir.substr(0, data_dir.rfind('.'));
  return generation_of(data_dir, base) ? base : data_dir;
}

}  // namespace

std::string_view data_stem(std::string_view model_name) {
  const bool has_suffix =
      model_name.size() > kModelSuffix.size() && model_name.ends_with(kModelSuffix);
  return has_suffix ? model_name.substr(0, model_name.size() - kModelSuffix.size()) : model_name;
}

namespace {

// ".N" of "initializers.N", else "".
std::string_view generation_mark(std::string_view data_dir) {
  return data_dir.substr(generation_base(data_dir).size());
}

}  // namespace

std::string numbered_stem(std::string_view model_name, std::string_view data_dir) {
  return std::string(data_stem(model_name)).append(generation_mark(data_dir));
}

namespace {

std::string_view without_shard_mark(std::string_view stem) {
  const bool is_shard = stem.size() > kShardForm.size() &&
                        has_form(stem.substr(stem.size() - kShardForm.size()), kShardForm);
  return is_shard ? stem.substr(0, stem.size() - kShardForm.size()) : stem;
}

}  // namespace

DataName data_name_of(std::string_view model_name, std::string_view data_name) {
  if (data_name.empty()) {
    return {std::string(data_stem(model_name)), std::string(kDataSuffix)};
  }
  const std::size_t dot = data_name.rfind('.');
  const std::size_t end = dot == 0 ? data_name.npos : dot;  // ".weights" has no suffix
  return {std::string(data_name.substr(0, end)),
          end == data_name.npos ? std::string() : std::string(data_name.substr(end))};
}

std::string set_data_name(std::string_view data_dir, std::string_view data_name) {
  return data_name.empty() ? std::string(generation_base(data_dir)).append(kDataSuffix)
                           : std::string(data_name);
}

std::string single_file_name(const DataName& name, std::string_view data_dir) {
  return fmt::format("{}{}{}", name.stem, generation_mark(data_dir), name.suffix);
}

std::string shard_file_name(const DataName& name, std::string_view data_dir, std::size_t number,
                            std::size_t count) {
  if (name.suffix == kCountedSuffix) {
    const std::string first = single_file_name(name, data_dir);
    return number == 1 ? first : fmt::format("{}_{}", first, number - 1);
  }
  return fmt::format("{}{}-{:05}-of-{:05}{}", name.stem, generation_mark(data_dir), number, count,
                     name.suffix);
}

std::optional<std::string_view> data_name_fault(std::string_view model_name,
                                                std::string_view name) {
  const std::string lower = ascii_lower(name);
  if (lower == ascii_lower(model_name)) {
    return "is the model's";
  }
  if (lower.ends_with(kModelSuffix)) {
    return "is reserved for models";
  }
  if (lower.ends_with(kManifestSuffix) || lower == kManifestName) {
    return "is reserved for manifests";
  }
  if (is_test_set_name(lower)) {
    return "is reserved for recorded inputs";
  }
  return std::nullopt;
}

namespace {

// "model.onnx_data" of "model.onnx_data_12", if data files of this name are counted so.
std::string_view without_count(std::string_view file, const DataName& name) {
  const std::size_t end = file.find_last_not_of("0123456789");
  const bool is_counted = name.suffix == kCountedSuffix && end != file.npos && file[end] == '_' &&
                          end + 1 < file.size() && file[end + 1] != '0' &&
                          file.substr(0, end).ends_with(kCountedSuffix);
  return is_counted ? file.substr(0, end) : file;
}

}  // namespace

std::optional<std::uint64_t> generation_of_data_file(std::string_view file, const DataName& name) {
  file = without_count(file, name);
  if (file.size() <= name.suffix.size() || !file.ends_with(name.suffix)) {
    return std::nullopt;
  }
  const std::string_view stem = file.substr(0, file.size() - name.suffix.size());
  const auto single = generation_of(stem, name.stem);
  return single ? single : generation_of(without_shard_mark(stem), name.stem);
}

std::string_view shard_mark(std::string_view file) {
  const std::string_view stem = file.substr(0, file.rfind('.'));
  for (const std::string_view whole : {stem, file}) {  // with a suffix, or without
    if (const auto rest = without_shard_mark(whole); rest.size() != whole.size()) {
      return whole.substr(rest.size());
    }
  }
  return {};
}

std::string manifest_file_name(std::string_view numbered_stem) {
  return std::string(numbered_stem).append(kManifestSuffix);
}

std::optional<std::string_view> stem_of_data_file(std::string_view name) {
  if (name.size() <= kDataSuffix.size() || !name.ends_with(kDataSuffix)) {
    return std::nullopt;
  }
  return without_shard_mark(name.substr(0, name.size() - kDataSuffix.size()));
}

std::optional<std::string_view> stem_of_manifest_file(std::string_view name) {
  if (name.size() <= kManifestSuffix.size() || !name.ends_with(kManifestSuffix)) {
    return std::nullopt;
  }
  return name.substr(0, name.size() - kManifestSuffix.size());
}

namespace {

bool is_numbered(std::string_view name, std::string_view stem, std::string_view suffix) {
  if (name.size() <= stem.size() + suffix.size() || !name.starts_with(stem) ||
      !name.ends_with(suffix)) {
    return false;
  }
  const std::size_t digits = name.size() - stem.size() - suffix.size();
  return name.substr(stem.size(), digits).find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

bool is_test_set_name(std::string_view name) {
  return is_numbered(name, kTestSetStem, "");
}

bool is_test_input_name(std::string_view name) {
  return is_numbered(name, kTestInputStem, kTestInputSuffix);
}

}  // namespace onnx_external
