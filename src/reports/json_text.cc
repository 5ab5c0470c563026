#include "reports/json_text.h"

#include <string_view>

namespace onnx_external {

std::string compact(const Document& value) {
  return value.dump(-1, ' ', true, Document::error_handler_t::replace);
}

std::string document_text(const Document& document) {
  std::string out = "{";
  for (const auto& [key, value] : document.items()) {
    out += (out.size() == 1 ? "\n  " : ",\n  ") + compact(key) + ": ";
    if (!value.is_array() || value.empty() || !value.front().is_object()) {
      out += compact(value);
      continue;
    }
    std::string_view separator = "[\n    ";
    for (const Document& element : value) {
      out += std::string(separator) + compact(element);
      separator = ",\n    ";
    }
    out += "\n  ]";
  }
  return out + "\n}\n";
}

}  // namespace onnx_external
