#include "checkpoint/gguf/gguf_parts.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <optional>
#include <utility>

#include "base/bad_input.h"
#include "base/holes.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/formats/shard_index.h"

namespace onnx_external {
namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

std::string part_name(std::string_view stem, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

// The number of a key of a part; nothing if it is not there.
Result<std::optional<std::uint64_t>> split_number(const GgufFile& part, std::string_view key) {
  const GgufValue* const value = part.metadata.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto number = value->uint();
  return number ? Result<std::optional<std::uint64_t>>(number)
                : corrupt(part.file->name() + ": " + quote(key) + " is not a number");
}

Status check_split(const GgufFile& part, std::uint64_t number, std::uint64_t count) {
  TRY_ASSIGN(const auto own, split_number(part, kSplitNumber));
  TRY_ASSIGN(const auto of, split_number(part, kSplitCount));
  if (own != number || of != count) {
    return corrupt(fmt::format("{}: says that it is part {} of {}, but its name says part {} of {}",
                               part.file->name(), own.value_or(0) + 1, of.value_or(0), number + 1,
                               count));
  }
  return {};
}

Status add_part(GgufFile part, GgufModel& model) {
  for (GgufTensor& tensor : part.tensors) {
    model.part_of.push_back(model.parts.size());
    model.tensors.push_back(std::move(tensor));
  }
  part.tensors.clear();
  if (model.tensors.size() > kMaxGgufTensors) {
    return unsupported(fmt::format("{}: more than {} tensors", part.file->name(), kMaxGgufTensors));
  }
  model.parts.push_back(std::move(part));
  return {};
}

Status add_other_parts(std::uint64_t count, GgufModel& model) {
  const GgufFile first = model.parts.front();
  const std::filesystem::path path = first.file->path();
  const std::string name = path.filename().string();
  static const RE2 kPart("(.*)-(\\d{5})-of-(\\d{5})\\.gguf");
  std::string stem;
  if (!RE2::FullMatch(name, kPart, &stem) || name != part_name(stem, 1, count)) {
    return unsupported(
        fmt::format("{}: is one of {} files of a model; pass the first file, which is named "
                    "'NAME-00001-of-{:05}.gguf'",
                    first.file->name(), count, count));
  }
  TRY(check_split(first, 0, count));
  for (std::uint64_t i = 1; i < count; ++i) {
    TRY_ASSIGN(auto file, open_shard(path.parent_path(), part_name(stem, i + 1, count)));
    TRY(check_is_written(*file));
    TRY_ASSIGN(auto part, read_gguf_file(std::move(file), GgufArrays::kShort));
    TRY(check_split(part, i, count));
    TRY(add_part(std::move(part), model));
  }
  TRY_ASSIGN(const auto tensors, split_number(first, kSplitTensors));
  if (tensors && *tensors != model.tensors.size()) {
    return corrupt(fmt::format("{}: its {} files have {} tensors, but {} says {}",
                               first.file->name(), count, model.tensors.size(),
                               quote(kSplitTensors), *tensors));
  }
  return {};
}

}  // namespace

Result<GgufModel> read_gguf_parts(std::shared_ptr<const SourceFile> file) {
  TRY(check_is_written(*file));
  GgufModel model;
  TRY_ASSIGN(auto first, read_gguf_file(std::move(file), GgufArrays::kShort));
  TRY_ASSIGN(const auto count, split_number(first, kSplitCount));
  TRY(add_part(std::move(first), model));
  if (count.value_or(1) > kMaxGgufParts) {
    return corrupt(fmt::format("{}: is one of {} files", model.parts[0].file->name(), *count));
  }
  if (count.value_or(0) > 1) {
    TRY(add_other_parts(*count, model));
  }
  return model;
}

std::string first_gguf_part(std::string_view name) {
  static const RE2 kPart("(.*)-\\d{5}-of-(\\d{5})\\.gguf");
  std::string stem;
  std::string count;
  return RE2::FullMatch(name, kPart, &stem, &count) ? stem + "-00001-of-" + count + ".gguf" : "";
}

}  // namespace onnx_external
