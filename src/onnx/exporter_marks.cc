#include "onnx/exporter_marks.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kPersistent = "pkg.torch.export.graph_signature.InputSpec.persistent";
constexpr std::string_view kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";
constexpr std::string_view kRuleName = "pkg.onnxscript.rewriter.rule_name";
constexpr std::string_view kNameScopes = "pkg.torch.onnx.name_scopes";
constexpr std::string_view kNamespace = "namespace";
constexpr std::string_view kClassHierarchy = "pkg.torch.onnx.class_hierarchy";
constexpr std::string_view kFxNode = "pkg.torch.onnx.fx_node";
constexpr std::string_view kFuseBatchNorm = "FuseBatchNorm";
// The scope that torch.export records for operators whose modules it does not know.
constexpr std::string_view kNoModule = "_empty_nn_module_stack_from_metadata_hook";

// Numbers of the field metadata_props in onnx.proto since ONNX 1.16.
constexpr int kValueInfoMetadata = 4;
constexpr int kNodeMetadata = 9;
constexpr std::size_t kMaxNames = 10'000;  // of one list; an exporter writes a handful

// A serialized entry begins with its key. Entries may hold a stack trace, so those with another key
// are not parsed. Classes that know the field leave it unused.
[[maybe_unused]] bool may_have_key(std::string_view entry, std::string_view keys_start) {
  constexpr std::size_t kTagAndLength = 2;
  return entry.size() > kTagAndLength && entry.substr(kTagAndLength).starts_with(keys_start);
}

// Calls visit(key, value) for each entry whose key starts with `keys_start`. `field` is the number
// of metadata_props, which the classes may not know.
template <typename Message, typename Visit>
void for_each_entry(const Message& message, int field, std::string_view keys_start,
                    const Visit& visit) {
  if constexpr (requires { message.metadata_props(); }) {
    for (const auto& entry : message.metadata_props()) {
      if (entry.key().starts_with(keys_start)) {
        visit(entry.key(), entry.value());
      }
    }
  } else {
    const google::protobuf::UnknownFieldSet& unknown = message.unknown_fields();
    for (int i = 0; i < unknown.field_count(); ++i) {
      const google::protobuf::UnknownField& found = unknown.field(i);
      onnx::StringStringEntryProto entry;
      if (found.number() == field &&
          found.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
          may_have_key(found.length_delimited(), keys_start) &&
          entry.ParseFromString(found.length_delimited())) {
        visit(entry.key(), entry.value());
      }
    }
  }
}

template <typename Message>
bool has_entries(const Message& message) {
  if constexpr (requires { message.metadata_props(); }) {
    return message.metadata_props_size() > 0;
  } else {
    return !message.unknown_fields().empty();
  }
}

SlotOrigin origin_called(std::string_view kind) {
  if (kind == "PARAMETER") {
    return SlotOrigin::kParameter;
  }
  if (kind == "BUFFER") {
    return SlotOrigin::kBuffer;
  }
  if (kind == "CONSTANT_TENSOR") {
    return SlotOrigin::kConstant;
  }
  return kind == "USER_INPUT" ? SlotOrigin::kUserInput : SlotOrigin::kUnstated;
}

}  // namespace

bool has_marks(const onnx::ValueInfoProto& info) {
  return has_entries(info);
}

ExporterMarks read_marks(const onnx::ValueInfoProto& info) {
  ExporterMarks marks;
  bool is_local = false;
  for_each_entry(info, kValueInfoMetadata, "pkg.",
                 [&](const std::string& key, const std::string& value) {
                   if (key == kKind) {
                     marks.origin = origin_called(value);
                   } else if (key == kPersistent) {
                     is_local = value == "False";
                   } else if (key == kFoldedFrom) {
                     marks.folded_from = parse_python_names(value);
                   } else if (key == kTransposedKey) {
                     marks.transposed = true;
                   } else if (key == kWithoutDataKey) {
                     marks.without_data = true;
                   }
                 });
  if (marks.origin == SlotOrigin::kBuffer && is_local) {
    marks.origin = SlotOrigin::kLocalBuffer;
  }
  return marks;
}

bool has_fused_batch_norm(const onnx::NodeProto& node) {
  bool fused = false;
  for_each_entry(
      node, kNodeMetadata, kRuleName, [&](const std::string& key, const std::string& value) {
        // If several rules were applied, the value is "A, B".
        fused = fused || (key == kRuleName && value.find(kFuseBatchNorm) != std::string::npos);
      });
  return fused;
}

namespace {

// Calls visit(module) for each module of a path, with its whole name. In
// "/layer1/layer1.0/conv1/Conv" a component that continues the one before it replaces that one.
// Returns the last module.
template <typename Visit>
std::string for_each_module(std::string_view path, const Visit& visit) {
  std::string module;
  std::string_view last;
  const std::size_t end = path.rfind('/');
  for (std::size_t start = 1; start < end && end != std::string_view::npos;) {
    const std::size_t slash = std::min(path.find('/', start), end);
    const std::string_view component = path.substr(start, slash - start);
    const bool goes_on = !last.empty() && component.size() > last.size() + 1 &&
                         component.starts_with(last) && component[last.size()] == '.';
    if (goes_on) {
      module.resize(module.size() - last.size());
    } else if (!module.empty()) {
      module += '.';
    }
    module += component;
    last = component;
    start = slash + 1;
    visit(module);
  }
  return module;
}

std::string module_of_path(std::string_view path) {
  return for_each_module(path, [](const std::string&) {});
}

std::vector<std::string> modules_of_path(std::string_view path) {
  std::vector<std::string> modules;
  (void)for_each_module(path, [&](const std::string& module) {
    if (modules.size() < kMaxModuleScopes) {
      modules.push_back(module);
    }
  });
  return modules;
}

// Returns the modules in a namespace such as ": Model/layer1: Stage/layer1.0: Block/add:
// aten.add.Tensor".
std::vector<std::string> modules_of_namespace(std::string_view text) {
  std::vector<std::string> modules;
  while (modules.size() < kMaxModuleScopes) {
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) {
      break;  // the last one is the operator's own
    }
    const std::string_view part = text.substr(0, slash);
    modules.emplace_back(part.substr(0, std::min(part.find(": "), part.size())));
    text.remove_prefix(slash + 1);
  }
  return modules;
}

}  // namespace

std::optional<bool> reads_parameter(const onnx::NodeProto& node) {
  std::optional<bool> reads;
  for_each_entry(node, kNodeMetadata, kFxNode, [&](const std::string&, const std::string& value) {
    reads = value.find("%p_") != std::string::npos || value.find("%b_") != std::string::npos;
  });
  return reads;
}

namespace {

// "embeddings_layernorm_weight" of "embeddings.LayerNorm.weight".
std::string name_in_trace(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : '_';
  });
  return text;
}

bool contains_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if (end == text.size() ||
        (std::isalnum(static_cast<unsigned char>(text[end])) == 0 && text[end] != '_')) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool reads_as_buffer(const onnx::NodeProto& node, std::string_view name) {
  bool found = false;
  for_each_entry(node, kNodeMetadata, kFxNode, [&](const std::string&, const std::string& value) {
    const std::string traced = name_in_trace(name);
    found = found || contains_word(value, "%b_" + traced) || contains_word(value, "%c_" + traced);
  });
  return found;
}

bool is_made_for(const onnx::NodeProto& node, std::string_view operation) {
  const std::string target = "[target=torch.ops." + std::string(operation) + "]";
  bool found = false;
  for_each_entry(node, kNodeMetadata, kFxNode, [&](const std::string&, const std::string& value) {
    found = found || value.find(target) != std::string::npos;
  });
  return found;
}

bool is_linear_of_torch(const onnx::NodeProto& node) {
  bool is_torchs = false;
  for_each_entry(
      node, kNodeMetadata, kClassHierarchy, [&](const std::string&, const std::string& value) {
        // The last class is the operator's own.
        const std::vector<std::string> classes = parse_python_names(value);
        is_torchs =
            classes.size() > 1 && classes[classes.size() - 2].starts_with("torch.nn.modules.");
      });
  return is_torchs && is_made_for(node, "aten.linear.default");
}

std::string module_of(const onnx::NodeProto& node) {
  if (node.name().starts_with('/')) {
    return module_of_path(node.name());
  }
  std::string module;
  for_each_entry(node, kNodeMetadata, kNameScopes,
                 [&](const std::string&, const std::string& value) {
                   // The last name is the operator's own.
                   const std::vector<std::string> scopes = parse_python_names(value);
                   module = scopes.size() > 1 ? scopes[scopes.size() - 2] : "";
                   module = module == kNoModule ? "" : module;
                 });
  return module;
}

std::vector<std::string> module_scopes(const onnx::NodeProto& node) {
  if (node.name().starts_with('/')) {
    return modules_of_path(node.name());
  }
  std::vector<std::string> modules;
  for_each_entry(node, kNodeMetadata, kNameScopes,
                 [&](const std::string&, const std::string& value) {
                   modules = parse_python_names(value);
                   modules.resize(modules.empty() ? 0 : modules.size() - 1);
                 });
  if (modules.empty()) {
    for_each_entry(node, kNodeMetadata, kNamespace,
                   [&](const std::string&, const std::string& value) {
                     modules = modules_of_namespace(value);
                   });
  }
  std::erase_if(modules, [](const std::string& name) { return name.empty() || name == kNoModule; });
  modules.resize(std::min(modules.size(), kMaxModuleScopes));
  return modules;
}

std::vector<std::string> parse_python_names(std::string_view text) {
  std::vector<std::string> names;
  if (!text.starts_with('[') || !text.ends_with(']')) {
    return names;
  }
  text = text.substr(1, text.size() - 2);
  while (!text.empty() && names.size() < kMaxNames) {
    const char quote = text.front();
    if (quote != '\'' && quote != '"') {
      return {};
    }
    std::string name;
    std::size_t i = 1;
    for (; i < text.size() && text[i] != quote; ++i) {
      i += text[i] == '\\' && i + 1 < text.size() ? 1 : 0;
      name += text[i];
    }
    if (i == text.size()) {
      return {};
    }
    names.push_back(std::move(name));
    text.remove_prefix(i + 1);
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return names;
}

}  // namespace onnx_external
