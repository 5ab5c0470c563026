#include "onnx_external/test_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "mapping/name_refinement.h"
#include "onnx/wire_scan.h"
#include "onnx_external/dtype.h"
#include "save/file_names.h"

namespace onnx_external {
namespace {

constexpr std::size_t kListedNames = 5;

tl::unexpected<Error> mismatch(std::string what) {
  return fail(ErrorCode::kMismatch, std::move(what));
}

// One recorded tensor of a set.
struct Leaf {
  std::string name;  // without the number of its set
  std::size_t recording;
  std::size_t tensor;
  bool used = false;

  [[nodiscard]] bool positional() const { return name.starts_with('['); }
};
using Leaves = std::vector<Leaf>;

std::vector<std::string> unused_of(const Leaves& leaves) {
  std::vector<std::string> names;
  for (const Leaf& leaf : leaves) {
    if (!leaf.used) {
      names.push_back(leaf.name);
    }
  }
  return names;
}

// The sets of all recordings. A recording whose names carry no set is one set of keywords.
std::vector<Leaves> split_sets(std::span<const Checkpoint> recordings) {
  std::vector<Leaves> sets;
  for (std::size_t r = 0; r < recordings.size(); ++r) {
    const std::vector<TensorView>& tensors = recordings[r].tensors();
    // safetensors have no sets: their names are the arguments' own.
    const bool is_plain = recordings[r].format().ends_with("safetensors");
    std::string_view current;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::string_view name = tensors[t].name;
      const std::string_view set = is_plain ? "0" : name.substr(0, name.find('.'));
      if (t == 0 || set != current) {
        sets.emplace_back();
        current = set;
      }
      sets.back().push_back(
          {std::string(is_plain ? name : name.substr(std::min(set.size() + 1, name.size()))), r,
           t});
    }
  }
  return sets;
}

struct Spelling {
  std::string_view torch;         // ".key_cache."
  std::string_view before_index;  // "X.key.N"
  std::string_view after_index;   // "X.N.key"
};
constexpr std::array kSpellings = {
    Spelling{".self_attention_cache.key_cache.", ".decoder.key.", ".decoder.key"},
    Spelling{".self_attention_cache.value_cache.", ".decoder.value.", ".decoder.value"},
    Spelling{".cross_attention_cache.key_cache.", ".encoder.key.", ".encoder.key"},
    Spelling{".cross_attention_cache.value_cache.", ".encoder.value.", ".encoder.value"},
    Spelling{".key_cache.", ".key.", ".key"},
    Spelling{".value_cache.", ".value.", ".value"},
};

// The refined names under which exporters know a part: its own, and for parts of caches the two
// usual others ("past.key_cache.1" is "past.key.1" or "past.1.key" elsewhere).
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all{refine(name)};
  for (const Spelling& known : kSpellings) {
    const std::size_t at = name.rfind(known.torch);
    if (at != std::string::npos) {
      const std::string base = name.substr(0, at);
      const std::string index = name.substr(at + known.torch.size());
      all.push_back(refine(std::string(base).append(known.before_index).append(index)));
      all.push_back(refine(std::string(base).append(".").append(index).append(known.after_index)));
      break;
    }
  }
  return all;
}

enum class CacheHalf : std::uint8_t { kNone, kKey, kValue };

// Finds out whether a name refers to the keys or the values of a cache; the last mention counts.
CacheHalf cache_half(std::string_view name) {
  constexpr std::string_view kPast = "key_values";
  const std::size_t past = name.rfind(kPast);
  const std::string_view rest =
      past == std::string_view::npos ? name : name.substr(past + kPast.size());
  const std::size_t key = rest.rfind("key");
  const std::size_t value = rest.rfind("value");
  if (key == std::string_view::npos && value == std::string_view::npos) {
    return CacheHalf::kNone;
  }
  const bool is_key =
      value == std::string_view::npos || (key != std::string_view::npos && key > value);
  return is_key ? CacheHalf::kKey : CacheHalf::kValue;
}

// Feeds the inputs of one graph from the leaves of one set.
class SetMatcher {
 public:
  explicit SetMatcher(std::span<const GraphInput> inputs) : inputs_(inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      by_name_.emplace(inputs[i].name, i);
      by_refined_.emplace(refine(inputs[i].name), i);
    }
  }

  // For each input the leaf that feeds it.
  [[nodiscard]] Result<std::vector<const Leaf*>> match(Leaves& leaves) const {
    std::vector<const Leaf*> feeds(inputs_.size(), nullptr);
    bool any_by_name = false;
    for (Leaf& leaf : leaves) {
      const auto input = leaf.positional() ? std::nullopt : find(leaf.name);
      if (input && feeds[*input] != nullptr) {
        return mismatch(fmt::format("recorded {} and {} both fit input {}",
                                    quote(feeds[*input]->name), quote(leaf.name),
                                    quote(inputs_[*input].name)));
      }
      if (input) {
        feeds[*input] = &leaf;
        leaf.used = any_by_name = true;
      }
    }
    const bool all_by_order = !any_by_name && leaves.size() == inputs_.size();
    TRY(feed_by_order(leaves, all_by_order, feeds));
    return complete(leaves, std::move(feeds));
  }

 private:
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const {
    if (const auto exact = by_name_.find(name); exact != by_name_.end()) {
      return exact->second;
    }
    for (const std::string& spelling : spellings(name)) {
      const auto [first, last] = by_refined_.equal_range(spelling);
      if (first != last && std::next(first) == last) {
        return first->second;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Status feed_by_order(Leaves& leaves, bool all,
                                     std::vector<const Leaf*>& feeds) const {
    std::size_t next = 0;
    for (Leaf& leaf : leaves) {
      if (leaf.used || !(all || leaf.positional())) {
        continue;
      }
      while (next < feeds.size() && feeds[next] != nullptr) {
        ++next;
      }
      if (next == feeds.size()) {
        return mismatch(fmt::format("recorded {} matches no remaining input; the graph has {}: {}",
                                    quote(leaf.name), feeds.size(), names_of_inputs()));
      }
      const CacheHalf half = cache_half(leaf.name);
      const CacheHalf wanted = cache_half(inputs_[next].name);
      if (half != CacheHalf::kNone && wanted != CacheHalf::kNone && half != wanted) {
        return mismatch(
            fmt::format("recorded {} is at the position of input {}; record the cache as a keyword "
                        "argument, so that its name identifies it",
                        quote(leaf.name), quote(inputs_[next].name)));
      }
      feeds[next] = &leaf;
      leaf.used = true;
    }
    return {};
  }

  [[nodiscard]] Result<std::vector<const Leaf*>> complete(const Leaves& leaves,
                                                          std::vector<const Leaf*> feeds) const {
    const auto empty = std::find(feeds.begin(), feeds.end(), nullptr);
    if (empty == feeds.end()) {
      return feeds;
    }
    const std::vector<std::string> left = unused_of(leaves);
    const std::string& name = inputs_[static_cast<std::size_t>(empty - feeds.begin())].name;
    return mismatch("no recorded value matches input " + quote(name) +
                    (left.empty() ? "; record it as well"
                                  : "; recorded values that match no input: " +
                                        quote_list(left, kListedNames)));
  }

  [[nodiscard]] std::string names_of_inputs() const {
    std::vector<std::string> names;
    for (const GraphInput& input : inputs_) {
      names.push_back(input.name);
    }
    return quote_list(names, kListedNames);
  }

  std::span<const GraphInput> inputs_;
  std::map<std::string, std::size_t> by_name_;
  std::multimap<std::string, std::size_t> by_refined_;
};

Result<TestInput> make_input(const GraphInput& input, const Leaf& leaf, const TensorView& view) {
  TestInput made{input.name, leaf.name, leaf.recording, leaf.tensor, onnx_data_type(view.dtype),
                 {}};
  if (made.data_type == 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("recorded {}: ONNX has no type for {}; save it as another type",
                            quote(leaf.name), torch_name(view.dtype)));
  }
  TRY_ASSIGN_IN("recorded " + quote(leaf.name), made.dims, onnx_shape(view.dtype, view.shape));
  if (input.elem_type != 0 && input.elem_type != made.data_type) {
    return mismatch(fmt::format("input {} is {}, but recorded {} is {}", quote(input.name),
                                onnx_type_name(input.elem_type), quote(leaf.name),
                                onnx_type_name(made.data_type)));
  }
  if (input.shape && input.shape->size() != made.dims.size()) {
    return mismatch(fmt::format("input {} has {} dimensions, but recorded {} has {}: {}",
                                quote(input.name), input.shape->size(), quote(leaf.name),
                                made.dims.size(), shape_text(made.dims)));
  }
  return made;
}

Result<TestDataSet> make_set(std::span<const GraphInput> inputs, const SetMatcher& matcher,
                             Leaves& leaves, std::span<const Checkpoint> recordings) {
  TRY_ASSIGN(const auto feeds, matcher.match(leaves));
  TestDataSet set;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Leaf& leaf = *feeds[i];
    TRY_ASSIGN(set.inputs.emplace_back(),
               make_input(inputs[i], leaf, recordings[leaf.recording].tensors()[leaf.tensor]));
  }
  set.unused = unused_of(leaves);
  return set;
}

std::string dimension_text(const GraphInput::Dimension& dimension) {
  if (dimension.value) {
    return std::to_string(*dimension.value);
  }
  return dimension.symbol.empty() ? "?" : dimension.symbol;
}

// Returns nullopt for a dimension that is fixed and never varied.
std::optional<DimensionGuess> guess(const GraphInput& input, std::size_t axis,
                                    const std::set<std::int64_t>& seen) {
  const GraphInput::Dimension& dimension = (*input.shape)[axis];
  const bool varied = seen.size() > 1;
  if (dimension.value && !varied) {
    return std::nullopt;
  }
  return DimensionGuess{input.name,
                        axis,
                        dimension_text(dimension),
                        {seen.begin(), seen.end()},
                        dimension.value ? DimensionVerdict::kMustBeSymbolic
                        : varied        ? DimensionVerdict::kSymbolic
                                        : DimensionVerdict::kNeverVaried};
}

std::vector<DimensionGuess> guess_dimensions(std::span<const GraphInput> inputs,
                                             const std::vector<TestDataSet>& sets) {
  std::vector<DimensionGuess> guesses;
  for (std::size_t i = 0; sets.size() > 1 && i < inputs.size(); ++i) {
    const std::size_t rank = inputs[i].shape ? inputs[i].shape->size() : 0;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      std::set<std::int64_t> seen;
      for (const TestDataSet& set : sets) {
        seen.insert(set.inputs[i].dims[axis]);
      }
      if (auto one = guess(inputs[i], axis, seen)) {
        guesses.push_back(*std::move(one));
      }
    }
  }
  return guesses;
}

std::string in_set(std::size_t set) {
  return "recorded set " + std::to_string(set);
}

// Fixed dimensions that varied: what to do is the same for all, so they are named together.
Status check_guesses(const TestData& data) {
  std::vector<std::string> fixed;
  for (const DimensionGuess& one : data.dimensions) {
    if (one.verdict == DimensionVerdict::kMustBeSymbolic) {
      fixed.push_back(fmt::format("dimension {} of input {} is {}, but the recorded sizes are {}",
                                  one.axis, quote(one.input), one.graph, shape_text(one.seen)));
    }
  }
  if (fixed.empty()) {
    return {};
  }
  std::string text = fixed.front();
  for (std::size_t i = 1; i < fixed.size() && i < kListedNames; ++i) {
    text += "; " + fixed[i];
  }
  if (fixed.size() > kListedNames) {
    text += fmt::format("; and {} more", fixed.size() - kListedNames);
  }
  return mismatch("the graph fixes dimensions that vary (" + text +
                  "); export these dimensions as dynamic");
}

Status check_set(std::span<const GraphInput> inputs, const TestDataSet& set) {
  std::map<std::string, std::pair<std::int64_t, std::string>> symbols;  // value, where first
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& dims = set.inputs[i].dims;
    for (std::size_t axis = 0; inputs[i].shape && axis < dims.size(); ++axis) {
      const GraphInput::Dimension& dimension = (*inputs[i].shape)[axis];
      if (dimension.value && *dimension.value != dims[axis]) {
        return mismatch(fmt::format("dimension {} of input {} is {}, but recorded {} has {}", axis,
                                    quote(inputs[i].name), *dimension.value,
                                    quote(set.inputs[i].recorded), dims[axis]));
      }
      if (dimension.value || dimension.symbol.empty()) {
        continue;
      }
      const auto [known, is_new] =
          symbols.try_emplace(dimension.symbol, dims[axis], inputs[i].name);
      if (!is_new && known->second.first != dims[axis]) {
        return mismatch(fmt::format(
            "symbol {} is {} in input {}, but {} in input {}", quote(dimension.symbol),
            known->second.first, quote(known->second.second), dims[axis], quote(inputs[i].name)));
      }
    }
  }
  return {};
}

GraphInput graph_input(const onnx::ValueInfoProto& info) {
  GraphInput input{info.name(), 0, std::nullopt};
  if (!info.type().has_tensor_type()) {
    return input;
  }
  const auto& type = info.type().tensor_type();
  input.elem_type = type.elem_type();
  if (type.has_shape()) {
    input.shape.emplace();
    for (const auto& dim : type.shape().dim()) {
      GraphInput::Dimension dimension;
      if (dim.has_dim_value()) {
        dimension.value = dim.dim_value();
      } else {
        dimension.symbol = dim.dim_param();
      }
      input.shape->push_back(std::move(dimension));
    }
  }
  return input;
}

}  // namespace

std::vector<GraphInput> graph_inputs(const onnx::GraphProto& graph,
                                     std::span<const std::string> names) {
  const std::set<std::string_view> wanted(names.begin(), names.end());
  std::vector<GraphInput> inputs;
  for (const auto& info : graph.input()) {
    if (wanted.contains(info.name())) {
      inputs.push_back(graph_input(info));
    }
  }
  return inputs;
}

Result<Checkpoint> open_recording(const std::filesystem::path& path, const OpenOptions& options) {
  OpenOptions recorded = options;
  recorded.selection = Selection::kRecordedInputs;
  recorded.key.clear();  // these are the checkpoint's
  recorded.variant.clear();
  return open_checkpoint(std::span(&path, 1), recorded);
}

std::string_view verdict_name(DimensionVerdict verdict) {
  switch (verdict) {
    case DimensionVerdict::kSymbolic:
      return "symbolic";
    case DimensionVerdict::kMustBeSymbolic:
      return "must-be-symbolic";
    case DimensionVerdict::kNeverVaried:
      return "never-varied";
  }
  return "";
}

Result<TestData> plan_test_data(std::span<const GraphInput> inputs,
                                std::span<const Checkpoint> recordings) {
  std::vector<Leaves> sets = split_sets(recordings);
  if (sets.size() > kMaxTestDataSets) {
    return fail(ErrorCode::kUnsupported, fmt::format("{} recorded sets; at most {} can be written",
                                                     sets.size(), kMaxTestDataSets));
  }
  const SetMatcher matcher(inputs);
  TestData data;
  for (Leaves& leaves : sets) {
    TRY_ASSIGN_IN(in_set(data.sets.size()), auto set,
                  make_set(inputs, matcher, leaves, recordings));
    data.sets.push_back(std::move(set));
  }
  data.dimensions = guess_dimensions(inputs, data.sets);
  return data;
}

Status check_test_data(std::span<const GraphInput> inputs, const TestData& data) {
  TRY(check_guesses(data));
  for (std::size_t i = 0; i < data.sets.size(); ++i) {
    TRY_IN(in_set(i), check_set(inputs, data.sets[i]));
  }
  return {};
}

std::string test_set_name(std::size_t set) {
  return std::string(kTestSetStem) + std::to_string(set);
}

std::string test_input_name(std::size_t input) {
  return std::string(kTestInputStem) + std::to_string(input) + std::string(kTestInputSuffix);
}

Result<std::string> test_input_header(const TestInput& input, std::uint64_t nbytes) {
  constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int32_t>::max();
  onnx::TensorProto proto;
  proto.set_name(input.name);
  proto.set_data_type(input.data_type);
  proto.mutable_dims()->Add(input.dims.begin(), input.dims.end());
  std::string header = proto.SerializeAsString();
  append_raw_data_header(header, nbytes);
  if (nbytes > kMaxBytes - header.size()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("input {} takes {} bytes, more than a protobuf file can hold",
                            quote(input.name), nbytes));
  }
  return header;
}

}  // namespace onnx_external
