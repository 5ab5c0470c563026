#include "mapping/unfit_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kZeroScript =
    "join the parts of all ranks first: python zero_to_fp32.py . OUTPUT, in the folder with that "
    "DeepSpeed script";

std::string shown_key(const MappingKey& key) {
  return quote(key.name) + " is " + form_of(key);
}

// --- sharded training ----------------------------------------------------------------------------

bool has_no_elements(const MappingKey& key) {
  return std::find(key.shape.begin(), key.shape.end(), 0) != key.shape.end();
}

// Most of the floats are empty.
std::string empty_keys(const MappingTask& task) {
  const MappingKey* first = nullptr;
  std::size_t empty = 0;
  std::size_t floats = 0;
  for (const MappingKey& key : task.keys.keys) {
    floats += is_floating(key.dtype) ? 1 : 0;
    if (is_floating(key.dtype) && has_no_elements(key)) {
      first = first == nullptr ? &key : first;
      ++empty;
    }
  }
  if (first == nullptr || empty * 2 < floats) {
    return "";
  }
  return std::to_string(empty) + (empty == 1 ? " tensor" : " tensors") +
         " of the checkpoint are empty (" + shown_key(*first) +
         "), as in the file that one rank of DeepSpeed ZeRO stage 3 saves; " +
         std::string(kZeroScript);
}

struct SignRow {
  std::string_view component;  // of a key's name; a number may follow, behind '_'
  std::string_view cause;
};

constexpr std::string_view kFlattened =
    "the weights are joined into flat tensors, as in FSDP; save a full state dict first: "
    "torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True)), or accelerate merge-weights";
constexpr std::string_view kZeroOptimizer =
    "this is the optimizer state of one DeepSpeed (ZeRO) rank; join the parts of all ranks first: "
    "python zero_to_fp32.py . OUTPUT, in the folder with that DeepSpeed script";
constexpr std::string_view kOptimizer =
    "this is the state of an optimizer; the weights are in another file of the training run";

constexpr std::array kSigns = {
    SignRow{"_flat_param", kFlattened},
    SignRow{"flat_param", kFlattened},
    SignRow{"fp32_flat_groups", kZeroOptimizer},
    SignRow{"single_partition_of_fp32_groups", kZeroOptimizer},
    SignRow{"exp_avg", kOptimizer},
    SignRow{"momentum_buffer", kOptimizer},
};

// Returns whether a component of the name is `sign`, or `sign` and a number: "flat_param_0".
bool has_sign(std::string_view name, std::string_view sign) {
  for (std::size_t at = name.find(sign); at != std::string_view::npos;
       at = name.find(sign, at + 1)) {
    const std::string_view rest = name.substr(at + sign.size());
    const std::string_view tail = rest.substr(0, rest.find('.'));
    const bool is_whole =
        tail.empty() || (tail.front() == '_' && tail.size() > 1 &&
                         tail.find_first_not_of("0123456789", 1) == std::string_view::npos);
    if ((at == 0 || name[at - 1] == '.') && is_whole) {
      return true;
    }
  }
  return false;
}

// A checkpoint may also have weights; in this case its unused keys do not matter.
std::string signs_of_training(const MappingTask& task) {
  const auto filled = [](const std::optional<Fill>& fill) { return fill.has_value(); };
  if (std::any_of(task.fills.begin(), task.fills.end(), filled)) {
    return "";
  }
  for (const SignRow& row : kSigns) {
    const auto found =
        std::find_if(task.keys.keys.begin(), task.keys.keys.end(),
                     [&](const MappingKey& key) { return has_sign(key.name, row.component); });
    if (found != task.keys.keys.end()) {
      return shown_key(*found) + ": " + std::string(row.cause);
    }
  }
  return "";
}

// --- factors -------------------------------------------------------------------------------------

struct FactorRow {
  std::string_view first;   // behind the weight's name
  std::string_view second;  // another key of the same weight
  std::string_view method;
  std::string_view advice;  // '#' stands for the name of the parameter
};

constexpr std::array kFactors = {
    FactorRow{
        "_orig"sv, "_mask"sv, "was pruned, and is the product of these two tensors",
        "make the pruning permanent in the module first, torch.nn.utils.prune.remove(module, '#')"},
    FactorRow{"_orig"sv, "_u"sv, "has spectral normalization",
              "remove it from the module first, "
              "torch.nn.utils.remove_spectral_norm(module, '#')"},
    FactorRow{"_g"sv, "_v"sv, "has weight normalization, and is computed from these two tensors",
              "remove it from the module first, torch.nn.utils.remove_weight_norm(module, '#')"},
    FactorRow{".original0"sv, ".original1"sv,
              "is parametrized, and is computed from these two tensors",
              "remove the parametrization from the module first, "
              "torch.nn.utils.parametrize.remove_parametrizations(module, '#')"},
    FactorRow{".original"sv, ""sv, "is parametrized, and is computed from that tensor",
              "remove the parametrization from the module first, "
              "torch.nn.utils.parametrize.remove_parametrizations(module, '#')"},
};

std::string name_with(std::string_view weight, std::string_view end) {
  if (!end.starts_with('.')) {
    return std::string(weight) + std::string(end);
  }
  const std::string_view module = module_of(weight);
  const std::size_t start = module.empty() ? 0 : module.size() + 1;
  return std::string(weight.substr(0, start)) + "parametrizations." +
         std::string(weight.substr(start)) + std::string(end);
}

std::string with_parameter(std::string_view advice, std::string_view weight) {
  std::string text(advice);
  const std::string_view module = module_of(weight);
  text.replace(text.find('#'), 1, weight.substr(module.empty() ? 0 : module.size() + 1));
  return text;
}

// The names without a prefix that they may have: of each the name, and what follows each dot.
class NamesBehindPrefixes {
 public:
  void add(std::string_view name) {
    names_.insert(name);
    for (const std::size_t at : boundaries(name)) {
      names_.insert(name.substr(at));
    }
  }
  [[nodiscard]] bool contains(std::string_view name) const { return names_.contains(name); }

 private:
  NameSet names_;
};

// The weights of one side are those of the other before torch multiplies.
template <typename Has>
std::string factors_of(std::span<const std::string_view> weights, const Has& has,
                       std::string_view side) {
  for (const std::string_view weight : weights) {
    for (const FactorRow& row : kFactors) {
      const std::string first = name_with(weight, row.first);
      const std::string second = row.second.empty() ? first : name_with(weight, row.second);
      if (has(first) && has(second)) {
        return std::string(side) + " has " + quote(first) +
               (first == second ? "" : " and " + quote(second)) + " for " + quote(weight) +
               ", which " + std::string(row.method) + "; " + with_parameter(row.advice, weight);
      }
    }
  }
  return "";
}

constexpr std::size_t kMaxWeightsSearched = 1024;

std::string factor_keys(const MappingTask& task) {
  std::vector<std::string_view> missing;
  for (const SlotName& slot : task.slot_names) {
    if (slot.open && missing.size() < kMaxWeightsSearched) {
      missing.push_back(slot.name);
    }
  }
  NamesBehindPrefixes keys;
  NamesBehindPrefixes slots;
  std::vector<std::string_view> unused;
  for (std::size_t key = 0; key < task.key_names.size(); ++key) {
    if (!task.key_used[key]) {
      keys.add(task.key_names[key].name);
      if (unused.size() < kMaxWeightsSearched) {
        unused.push_back(task.key_names[key].name);
      }
    }
  }
  std::string text = factors_of(
      missing, [&](std::string_view name) { return keys.contains(name); }, "the checkpoint");
  if (!text.empty()) {
    return text + ", and save its state_dict()";
  }
  for (const SlotName& slot : task.slot_names) {
    slots.add(slot.name);
  }
  text = factors_of(
      unused, [&](std::string_view name) { return slots.contains(name); }, "the graph");
  return text.empty() ? "" : text + ", and export it again";
}

}  // namespace

std::string unfit_keys(const MappingTask& task) {
  std::string text = empty_keys(task);
  text = text.empty() ? signs_of_training(task) : text;
  return text.empty() ? factor_keys(task) : text;
}

// --- parts of tensors ----------------------------------------------------------------------------

namespace {

// n if the key has an n-th of the slot in one dimension, and is equal in all others.
std::optional<std::int64_t> fraction_of(const MappingTask& task, const AlignedPair& pair) {
  const Slot& slot = task.first_slot(pair.slot_name);
  const auto shape = apply_recipe(task.recipe_of(pair.slot_name), task.keys.keys[pair.key].shape);
  if (!slot.shape || !shape || slot.shape->size() != shape->size()) {
    return std::nullopt;
  }
  std::optional<std::int64_t> factor;
  for (std::size_t i = 0; i < shape->size(); ++i) {
    const std::int64_t whole = (*slot.shape)[i].value_or((*shape)[i]);
    const std::int64_t part = (*shape)[i];
    if (whole == part) {
      continue;
    }
    if (factor || part <= 0 || whole % part != 0) {
      return std::nullopt;
    }
    factor = whole / part;
  }
  return factor;
}

bool is_matrix(const MappingTask& task, const AlignedPair& pair) {
  return task.keys.keys[pair.key].shape.size() > 1;
}

}  // namespace

std::string cut_among_ranks(const MappingTask& task, const Aligned& aligned) {
  std::map<std::int64_t, std::size_t> counts;
  for (const AlignedPair& clash : aligned.clashes) {
    if (const auto factor = fraction_of(task, clash)) {
      ++counts[*factor];
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto matrices = [&](const std::vector<AlignedPair>& pairs) {
    return std::count_if(pairs.begin(), pairs.end(),
                         [&](const AlignedPair& pair) { return is_matrix(task, pair); });
  };
  // In a shard of a model, all or nearly all large weights are cut. In a model with another head,
  // only a few weights differ.
  constexpr std::size_t kFewest = 2;
  if (most == counts.end() || most->second < kFewest ||
      most->second * 5 < aligned.clashes.size() * 4 ||
      matrices(aligned.clashes) < matrices(aligned.fits)) {
    return "";
  }
  const std::string n = std::to_string(most->first);
  return "the keys have 1/" + n +
         " of their slots' size in one dimension each, like the parts of a checkpoint that is "
         "split among " +
         n +
         " ranks (tensor parallelism); join the parts of all ranks first, with the library that "
         "wrote them, or use the graph of a model with these sizes";
}

}  // namespace onnx_external
