#include "checkpoint/naming/hqq_modules.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/naming/object_tree.h"
#include "checkpoint/pickle/walk_budget.h"
#include "checkpoint/torch/torch_objects.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

constexpr std::string_view kCodes = "W_q";
constexpr std::string_view kMeta = "meta";

// The plain values without which the codes cannot be read.
constexpr std::array<std::string_view, 6> kValues = {"packing",    "shape",       "axis",
                                                     "group_size", "quant_scale", "quant_zero"};

// Of a quantized module; a parameter of attention may be called "W_q" as well.
constexpr std::array<std::string_view, 2> kWithCodes = {"scale", "packing"};

std::optional<NodeId> value_of(const Pickle& pickle, const Items& items, std::string_view key) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    return pickle.string(item.first) == key;
  });
  return found == items.end() ? std::nullopt : std::optional(found->second);
}

// The dicts about scales and zero points that are quantized themselves, and what is needed of them.
constexpr std::array<std::string_view, 2> kInnerMetas = {"meta_scale", "meta_zero"};
constexpr std::array<std::string_view, 3> kInnerValues = {"scale", "zero", "axis"};

bool is_needed(std::string_view value) {
  return std::find(kValues.begin(), kValues.end(), value) != kValues.end();
}

class HqqModules {
 public:
  explicit HqqModules(const Pickle& pickle) : pickle_(pickle), budget_(pickle) {}

  [[nodiscard]] Result<std::optional<NamedTensors>> run() {
    TRY_ASSIGN(const auto modules, paid_items(pickle_, pickle_.root(), budget_));
    if (!std::all_of(modules.begin(), modules.end(), [&](const auto& module) {
          return pickle_.string(module.first) && is_dict(pickle_, module.second);
        })) {
      return std::nullopt;
    }
    bool has_quantized = false;
    for (const auto& [key, module] : modules) {
      TRY_ASSIGN(const auto items, module_items(module));
      has_quantized = has_quantized || is_quantized(items);
    }
    if (!has_quantized) {
      return std::nullopt;
    }
    for (const auto& [key, module] : modules) {
      TRY(add_module(std::string(*pickle_.string(key)), module));
    }
    return std::move(named_);
  }

 private:
  [[nodiscard]] bool has_codes(const Items& items) const {
    const auto codes = value_of(pickle_, items, kCodes);
    return codes && is_tensor(pickle_, *codes);
  }

  [[nodiscard]] bool is_quantized(const Items& items) const {
    return has_codes(items) &&
           std::any_of(kWithCodes.begin(), kWithCodes.end(),
                       [&](std::string_view key) { return value_of(pickle_, items, key); });
  }

  // The items of a module, with those of "meta" if it has codes.
  [[nodiscard]] Result<Items> module_items(NodeId module) {
    TRY_ASSIGN(auto items, paid_items(pickle_, module, budget_));
    const auto meta = has_codes(items) ? value_of(pickle_, items, kMeta) : std::nullopt;
    if (meta && is_dict(pickle_, *meta)) {
      TRY_ASSIGN(const auto inner, paid_items(pickle_, *meta, budget_));
      items.insert(items.end(), inner.begin(), inner.end());
    }
    return items;
  }

  [[nodiscard]] Status add_module(const std::string& name, NodeId module) {
    TRY_ASSIGN(const auto items, module_items(module));
    const bool quantized = is_quantized(items);
    const std::string prefix = name.empty() ? "" : name + ".";
    for (const auto& [key, value] : items) {
      const auto part = pickle_.string(key);
      if (part && (is_tensor(pickle_, value) ||
                   (quantized && is_needed(*part) && is_plain_value(pickle_, value)))) {
        TRY(add(prefix + std::string(*part), value));
      }
    }
    for (const std::string_view inner : kInnerMetas) {
      const auto value = value_of(pickle_, items, inner);
      if (quantized && value && is_dict(pickle_, *value)) {
        TRY(add_inner(prefix + std::string(inner) + ".", *value));
      }
    }
    if (quantized) {
      TRY(budget_.name(prefix.size()));
      named_.weights.push_back(prefix + "weight");
    }
    return {};
  }

  [[nodiscard]] Status add_inner(const std::string& prefix, NodeId meta) {
    TRY_ASSIGN(const auto items, paid_items(pickle_, meta, budget_));
    for (const std::string_view part : kInnerValues) {
      const auto value = value_of(pickle_, items, part);
      if (value && (is_tensor(pickle_, *value) || is_plain_value(pickle_, *value))) {
        TRY(add(prefix + std::string(part), *value));
      }
    }
    return {};
  }

  [[nodiscard]] Status add(std::string name, NodeId value) {
    TRY(budget_.name(name.size()));
    if (named_.tensors.size() >= kMaxWalkTensors) {
      return WalkBudget::too_much();
    }
    if (!is_utf8(name)) {
      return unsupported("tensor name " + quote(name) + " is not UTF-8");
    }
    if (!names_.insert(name).second) {
      return corrupt("two tensors have the name " + quote(name));
    }
    named_.tensors.push_back({std::move(name), value});
    return {};
  }

  const Pickle& pickle_;
  WalkBudget budget_;
  std::unordered_set<std::string> names_;
  NamedTensors named_;
};

}  // namespace

bool is_plain_value(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kBool:
    case NodeKind::kInteger:
    case NodeKind::kString:
      return true;
    default:
      return call_of(pickle, id) == Call::kSize;
  }
}

Result<std::optional<NamedTensors>> name_hqq_modules(const Pickle& pickle) {
  const Items first = pickle.items(pickle.root(), 1);  // of most files, a tensor
  const bool may_be =
      !first.empty() && is_dict(pickle, pickle.root()) && is_dict(pickle, first.front().second);
  return may_be ? HqqModules(pickle).run() : std::nullopt;
}

}  // namespace onnx_external
