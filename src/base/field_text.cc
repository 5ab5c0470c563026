#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "base/remedy.h"

namespace onnx_external {
namespace {

// The text as a string literal of C++. Octal escapes end after three digits, others go on.
std::string literal(std::string_view text) {
  const bool printable = is_harmless(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !printable)) {
      out += fmt::format("\\{:03o}", byte);
    } else {
      out += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
  }
  return out + '"';
}

// The names, separated by commas, as literals.
std::string literals(std::string_view names) {
  const std::size_t comma = names.find(',');
  return comma == std::string_view::npos
             ? literal(names)
             : literal(names.substr(0, comma)) + ", " + literals(names.substr(comma + 1));
}

enum class Form : std::uint8_t { kNone, kText, kNames, kNumber };

// How an option is set: `before`, its value in some form, `after`.
struct Field {
  std::string_view option;
  std::string_view before;
  Form form = Form::kNone;
  std::string_view after = "";
};

constexpr std::array kFields = {
    Field{"attributes", "PlanOptions::existing_data = ExistingData::kMoveAndAttributes"},
    Field{"convert sparse", "OpenOptions::densify = true"},
    Field{"convert complex32", "OpenOptions::widen_complex32 = true"},
    Field{"dtype slot", "MappingOptions::casts = Casts::kAllow"},
    Field{"ignore", "MappingOptions::ignore = {", Form::kText, "}"},
    Field{"inputs", "MappingOptions::inputs = {", Form::kNames, "}"},
    Field{"keep", "MappingOptions::keep = {", Form::kNames, "}"},
    Field{"key", "OpenOptions::key = ", Form::kText},
    Field{"layout single", "layout = Layout::kSingle"},
    Field{"learn-map", "SaveOptions::learn_from"},
    Field{"map", "MappingOptions::map"},
    Field{"max-expand", "OpenOptions::max_expand = ", Form::kNumber},
    Field{"no-fsync", "sync = Sync::kNone"},
    Field{"overlay", "OpenOptions::overlay = true"},
    Field{"overwrite", "overwrite = Overwrite::kAllow"},
    Field{"partial", "partial = Partial::kAllow"},
    Field{"prefix", "MappingOptions::prefix = ", Form::kText},
    Field{"rename", "MappingOptions::renames = {*parse_rename(", Form::kText, ")}"},
    Field{"threads", "threads = ", Form::kNumber},
    Field{"unmatched skip", "MappingOptions::unmatched = Unmatched::kSkip"},
    Field{"variant", "OpenOptions::variant = ", Form::kText},
};

std::string value_text(std::string_view value, Form form) {
  switch (form) {
    case Form::kText:
      return literal(value);
    case Form::kNames:
      return literals(value);
    case Form::kNumber:
      return std::string(value);
    case Form::kNone:
      break;
  }
  return "";
}

}  // namespace

std::string field_text(const Remedy& remedy) {
  for (const Field& field : kFields) {
    if (field.option == remedy.option || field.option == remedy.option + " " + remedy.value) {
      return std::string(field.before) + value_text(remedy.value, field.form) +
             std::string(field.after);
    }
  }
  return remedy.option + (remedy.value.empty() ? "" : " = " + literal(remedy.value));
}

}  // namespace onnx_external
