#include "reports/error_document.h"

#include <fmt/format.h>

#include <vector>

#include "reports/json_text.h"

namespace onnx_external {
namespace {

// Each list on a line, followed by its items, one per line.
std::string list_lines(const std::vector<ErrorList>& lists) {
  std::string out = "[";
  for (const ErrorList& list : lists) {
    out += (&list == lists.data() ? "\n      " : ",\n      ");
    out += fmt::format("{{\"kind\": {}, \"owner\": {}, \"title\": {}, \"items\": [",
                       compact(error_kind_name(list.kind)), compact(list.owner),
                       compact(list_title(list)));
    for (const ErrorItem& item : list.items) {
      out += &item == list.items.data() ? "\n        " : ",\n        ";
      out += compact({{"name", item.name},
                      {"form", item.form},
                      {"note", item.note},
                      {"candidates", item.candidates}});
    }
    out += "]}";
  }
  return out + "]";
}

}  // namespace

std::string error_document(std::string_view code, std::string_view message, std::string_view file,
                           const ErrorDetails* details) {
  Document remedies = Document::array();
  if (details != nullptr) {
    for (const Remedy& remedy : details->remedies) {
      remedies.push_back(
          {{"option", option_name(remedy.option)}, {"value", remedy.value}, {"when", remedy.when}});
    }
  }
  return fmt::format(
      "{{\n  \"error\": {{\n    \"code\": {},\n    \"kind\": {},\n    \"file\": {},\n    "
      "\"message\": {},\n"
      "    \"lists\": {},\n    \"remedies\": {}\n  }}\n}}\n",
      compact(code), compact(error_kind_name(kind_of(details))), compact(file), compact(message),
      list_lines(details != nullptr ? details->lists : std::vector<ErrorList>()),
      compact(remedies));
}

}  // namespace onnx_external
