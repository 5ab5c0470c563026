#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "base/remedy.h"
#include "base/text.h"
#include "onnx_external/result.h"

namespace onnx_external {
namespace {

constexpr std::size_t kShownCandidates = 2;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._/-").find(c) != std::string_view::npos;
}

// Quotes the text as a single argument for a shell; control characters need bash's $'...' form.
std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) {
    return std::string(text);
  }
  const bool printable = is_harmless(text);
  std::string word = printable ? "'" : "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (printable) {
      word += c == '\'' ? R"('\'')" : std::string(1, c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      word += fmt::format("\\x{:02x}", byte);
    } else {
      word += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
  }
  return word + "'";
}

std::string nearest_text(const std::vector<std::string>& candidates,
                         const ErrorTextOptions& options) {
  const std::size_t most = options.max_items == kAllItems ? candidates.size() : kShownCandidates;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, candidates.size()); ++i) {
    text += (i == 0 ? "nearest: " : ", ") + shown(candidates[i]);
  }
  return text;
}

std::string indented(const std::string& lines) {
  std::string out;
  for (std::size_t start = 0; start < lines.size();) {
    const std::size_t end = lines.find('\n', start) + 1;
    out += "  " + lines.substr(start, end - start);
    start = end;
  }
  return out;
}

std::string list_text(const ErrorList& list, const ErrorTextOptions& options) {
  const std::size_t most = std::min(options.max_items, list.items.size());
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < most; ++i) {
    const ErrorItem& item = list.items[i];
    rows.emplace_back();
    for (const std::string& cell : {shown(item.name), calm(item.form), calm(item.note),
                                    nearest_text(item.candidates, options)}) {
      rows.back().push_back(cell);
    }
  }
  // An empty column takes no space.
  for (std::size_t column = 4; column-- > 0 && !rows.empty();) {
    if (std::all_of(rows.begin(), rows.end(),
                    [&](const auto& row) { return row[column].empty(); })) {
      for (auto& row : rows) {
        row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
      }
    }
  }
  std::string out = fmt::format("{}: {}\n", calm(list_title(list)), list.items.size());
  out += indented(table_text(rows, {}));
  if (list.items.size() > most) {
    out += fmt::format("  ... and {} more{}\n", list.items.size() - most, options.how_to_see_all);
  }
  return out;
}

std::string remedies_text(const std::vector<Remedy>& remedies) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(remedies.size());
  for (const Remedy& remedy : remedies) {
    rows.push_back({option_text(remedy), calm(remedy.when)});
  }
  return rows.empty() ? "" : "to fix this:\n" + indented(table_text(rows, {}));
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid-argument";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kAlreadyExists:
      return "already-exists";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kAmbiguous:
      return "ambiguous";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "";
}

std::string option_text(const Remedy& remedy) {
  const std::string option = "--" + std::string(option_name(remedy.option));
  if (remedy.value.empty() && remedy.option != RemedyOption::kPrefix) {  // "" = none
    return option;
  }
  // CLI11 would take a value that begins with a dash for an option.
  return option + (remedy.value.starts_with('-') ? "=" : " ") + shell_word(remedy.value);
}

std::string error_text(const Error& error, const ErrorTextOptions& options) {
  const ErrorDetails none;
  const ErrorDetails& details = error.details ? *error.details : none;
  std::string out = error.message;
  if (details.lists.empty() && details.remedies.size() == 1) {
    const Remedy& only = details.remedies.front();
    return out + "; " + option_text(only) + (only.when.empty() ? "" : " ") + only.when + "\n";
  }
  out += "\n";
  for (const ErrorList& list : details.lists) {
    out += list_text(list, options);
  }
  return out + remedies_text(details.remedies);
}

std::ostream& operator<<(std::ostream& stream, const Error& error) {
  std::string text = error_text(error);
  text.pop_back();  // the line feed
  return stream << text;
}

}  // namespace onnx_external
