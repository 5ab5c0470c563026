#include "save/set_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"
#include "save/notes.h"
#include "save/output_names.h"

namespace onnx_external {
namespace {

constexpr std::string_view kSetNoteMagic = "onnx-external-set 1 ";
constexpr std::uint64_t kMaxSetNoteBytes = std::uint64_t{64} << 10;

// Takes the text up to the next `end` from the front of `rest`.
std::optional<std::string_view> take_until(std::string_view& rest, char end) {
  const std::size_t place = rest.find(end);
  if (place == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view word = rest.substr(0, place);
  rest.remove_prefix(place + 1);
  return word;
}

std::optional<ModelIdentity> take_identity(std::string_view& rest) {
  const auto crc = take_until(rest, ' ');
  const auto bytes = take_until(rest, ' ');
  const auto crc_value = crc ? hex_number(*crc) : std::nullopt;
  const auto bytes_value = bytes ? parse_decimal(*bytes) : std::nullopt;
  return crc_value && bytes_value ? std::optional(ModelIdentity{*bytes_value, *crc_value})
                                  : std::nullopt;
}

std::optional<NotedModel> take_model(std::string_view& rest) {
  const auto line = take_until(rest, '\n');
  std::string_view words = line.value_or("");
  const auto model = take_identity(words);
  if (!model) {
    return std::nullopt;
  }
  NotedModel noted{{}, *model};
  if (words.starts_with("- ")) {
    words.remove_prefix(2);
  } else if (noted.replaced = take_identity(words); !noted.replaced) {
    return std::nullopt;
  }
  noted.name = words;
  return noted;
}

// Whether the names are those that a save of a set may have.
bool has_good_names(const SetNote& note) {
  std::vector<std::string> names;
  for (const NotedModel& model : note.models) {
    names.push_back(model.name);
  }
  return check_set_names(names, note.data_dir).has_value();
}

std::optional<SetNote> parse_set_note(std::string_view text) {
  std::string_view rest = text;
  if (!rest.starts_with(kSetNoteMagic)) {
    return std::nullopt;
  }
  rest.remove_prefix(kSetNoteMagic.size());
  const auto count = take_until(rest, ' ');
  const auto overwrite = take_until(rest, ' ');
  const auto data_dir = take_until(rest, '\n');
  const auto models = count ? parse_decimal(*count) : std::nullopt;
  if (!models || !data_dir || *models > kMaxSetModels) {
    return std::nullopt;
  }
  SetNote note{
      std::string(*data_dir), overwrite == "replace" ? Overwrite::kAllow : Overwrite::kRefuse, {}};
  for (std::uint64_t i = 0; i < *models; ++i) {
    auto model = take_model(rest);
    if (!model) {
      return std::nullopt;
    }
    note.models.push_back(*std::move(model));
  }
  return text == set_note_text(note) && has_good_names(note) ? std::optional(std::move(note))
                                                             : std::nullopt;
}

}  // namespace

std::string set_note_text(const SetNote& note) {
  std::string text =
      fmt::format("{}{} {} {}\n", kSetNoteMagic, note.models.size(),
                  note.overwrite == Overwrite::kAllow ? "replace" : "refuse", note.data_dir);
  for (const NotedModel& model : note.models) {
    text += fmt::format("{} {} {}\n", identity_text(model.model),
                        model.replaced ? identity_text(*model.replaced) : "-", model.name);
  }
  return text;
}

Result<std::optional<SetNote>> read_set_note(const Directory& staging) {
  TRY_ASSIGN(const auto text, read_note(staging, kSetNoteName, kMaxSetNoteBytes));
  return text ? parse_set_note(*text) : std::nullopt;
}

std::size_t published_models(const Directory& out, const SetNote& note) {
  return static_cast<std::size_t>(std::count_if(
      note.models.begin(), note.models.end(),
      [&](const NotedModel& model) { return identify(out, model.name) == model.model; }));
}

}  // namespace onnx_external
