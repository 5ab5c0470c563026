// Any text as the entries of an external tensor. Lines: element type, dims with commas between
// them, then KEY=VALUE for each entry; any other line puts data into the tensor itself.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "onnx/external_data.h"
#include "verify/findings.h"

namespace {

using namespace onnx_external;

std::string_view take(std::string_view& text, char delimiter) {
  const std::string_view part = text.substr(0, text.find(delimiter));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void fill(std::string_view text, onnx::TensorProto& tensor) {
  tensor.Clear();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  tensor.set_data_type(static_cast<std::int32_t>(number(take(text, '\n'))));
  for (std::string_view dims = take(text, '\n'); !dims.empty();) {
    tensor.add_dims(number(take(dims, ',')));
  }
  while (!text.empty()) {
    const std::string_view line = take(text, '\n');
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      tensor.set_raw_data("inline");
      continue;
    }
    auto* entry = tensor.add_external_data();
    entry->set_key(line.data(), equals);
    entry->set_value(line.data() + equals + 1, line.size() - equals - 1);
  }
}

// Told in another way than check_relative_location() does it.
bool leads_out(std::string_view location) {
  bool out = location.empty() || location.starts_with('/') ||
             location.find('\0') != std::string_view::npos;
  while (!location.empty()) {
    out = take(location, '/') == ".." || out;
  }
  return out;
}

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

// What a save reads, it writes so that it reads the same again.
void load(onnx::TensorProto& tensor) {
  const auto external = read_external_tensor(tensor);
  if (!external) {
    return;
  }
  require(external->offset + external->length <= std::uint64_t{1} << 63U);
  write_external_entries({external->location, external->offset, external->length, ""}, tensor);
  const auto again = read_external_tensor(tensor);
  require(again && again->location == external->location && again->offset == external->offset &&
          again->length == external->length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static onnx::TensorProto tensor;
  fill({reinterpret_cast<const char*>(data), size}, tensor);
  std::vector<Finding> findings;
  const auto entry = read_entry({.proto = &tensor, .name = "w", .value = "w"}, findings);
  require(entry ? !leads_out(entry->location) : !findings.empty());
  // What is verified is what is saved, but for locations, which are checked when they are opened.
  const bool is_loaded = std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.code == FindingCode::kBadLocation;
  });
  require(read_external_tensor(tensor).has_value() == is_loaded);
  load(tensor);
  return 0;
}
