#include "checkpoint/naming/script_classes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

// ["weight", "bias", ]: as torch's PythonPrint writes it; nothing for anything else.
std::optional<std::vector<std::string>> quoted_list(std::string_view text) {
  std::vector<std::string> names;
  if (!text.starts_with('[') || text.find('\\') != std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(1);
  while (!text.starts_with(']')) {
    const std::size_t end = text.starts_with('"') ? text.find('"', 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    names.emplace_back(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return names;
}

// If the line begins with `start`, returns the rest of the line.
std::optional<std::string_view> after(std::string_view line, std::string_view start) {
  return line.starts_with(start) ? std::optional(line.substr(start.size())) : std::nullopt;
}

// Reads the classes of one file. Attributes are in the first lines of a class, one list per line.
std::map<std::string, ScriptClass, std::less<>> parse_classes(std::string_view code) {
  std::map<std::string, ScriptClass, std::less<>> classes;
  ScriptClass* open = nullptr;
  while (!code.empty()) {
    const std::size_t end = std::min(code.find('\n'), code.size());
    const std::string_view line = code.substr(0, end);
    code.remove_prefix(std::min(end + 1, code.size()));
    if (const auto name = after(line, "class ")) {
      open = &classes[std::string(name->substr(0, name->find_first_of("(:")))];
      open->is_module = name->find("(Module)") != std::string_view::npos;
    } else if (open == nullptr) {
      continue;
    } else if (const auto parameters = after(line, "  __parameters__ = ")) {
      open->parameters = quoted_list(*parameters).value_or(std::vector<std::string>());
    } else if (const auto buffers = after(line, "  __buffers__ = ")) {
      auto names = quoted_list(*buffers);
      open->lists_buffers = names.has_value();
      open->buffers = names ? *std::move(names) : std::vector<std::string>();
    }
  }
  for (auto& [name, found] : classes) {
    std::sort(found.parameters.begin(), found.parameters.end());
    std::sort(found.buffers.begin(), found.buffers.end());
  }
  return classes;
}

}  // namespace

Result<const ScriptClass*> ScriptClasses::find(std::string_view module, std::string_view name) {
  auto file = files_.find(module);
  if (file == files_.end()) {
    std::string path = "code/" + std::string(module);
    std::replace(path.begin(), path.end(), '.', '/');
    const ZipEntry* entry = zip_.find(path + ".py");
    Classes classes;
    if (entry != nullptr) {
      std::uint64_t& left = entry->compression == Compression::kNone ? bytes_left_ : inflated_left_;
      TRY_ASSIGN(const auto code, zip_.read_record(*entry, left));
      left -= code.size();
      classes = parse_classes(code);
    }
    file = files_.emplace(module, std::move(classes)).first;
  }
  const auto found = file->second.find(name);
  return found == file->second.end() ? nullptr : &found->second;
}

}  // namespace onnx_external
