#include "checkpoint/assembly/all_tensors.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/assembly/nested_storages.h"
#include "checkpoint/assembly/tensor_adder.h"
#include "checkpoint/naming/hqq_modules.h"
#include "checkpoint/naming/module_names.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

// A file of HQQ is a dict of modules, so none of its dicts is the state dict.
Result<NamedTensors> name_modules_or_tensors(const Pickle& pickle, const OpenOptions& options) {
  if (options.selection != Selection::kRecordedInputs &&
      (options.key.empty() || options.key == ".")) {
    TRY_ASSIGN(auto modules, name_hqq_modules(pickle));
    if (modules) {
      return *std::move(modules);
    }
  }
  return name_tensors(pickle, options);
}

}  // namespace

Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options) {
  switch (options.selection) {
    case Selection::kEverything:
      return name_everything(pickle, options.classes);
    case Selection::kRecordedInputs:
      return name_recorded_inputs(pickle, options.classes);
    case Selection::kStateDict:
      break;
  }
  return name_state_dict(pickle, options.key, options.classes);
}

Status add_tensors(const Pickle& pickle, NamedTensors named, const OpenOptions& options,
                   const FindStorage& find, FileContents& part) {
  std::move(named.opaque.begin(), named.opaque.end(), std::back_inserter(part.opaque));
  std::move(named.refused.begin(), named.refused.end(), std::back_inserter(part.refused));
  for (std::string& weight : named.weights) {
    part.declared_weights.push_back({std::move(weight), "HQQ weight", {}, {}});
  }
  const bool everything = options.selection == Selection::kEverything;
  const std::size_t first = part.tensors.size();
  part.tensors.reserve(first + named.tensors.size());
  TensorAdder adder(pickle, options, find, part);
  bool adds_names = false;  // of parts of a quantized tensor, which another may have
  for (NamedTensor& tensor : named.tensors) {
    const std::size_t before = part.tensors.size();
    auto status = adder.add(tensor.name, tensor.node);
    adds_names = adds_names || part.tensors.size() > before + 1;
    if (!status && everything && status.error().code == ErrorCode::kUnsupported) {
      part.tensors.resize(before);
      part.refused.push_back({std::move(tensor.name), status.error().message});
    } else if (!status) {
      return fail_in("tensor " + quote(tensor.name), std::move(status).error());
    }
  }
  return adds_names ? check_unique_names(std::span(part.tensors).subspan(first)) : Status();
}

Status check_unique_names(std::span<const TensorView> tensors) {
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto duplicate = std::adjacent_find(names.begin(), names.end());
  return duplicate == names.end() ? Status()
                                  : corrupt("two tensors have the name " + quote(*duplicate));
}

Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                       const OpenOptions& options, const FindStorage& find, FileContents& part) {
  label_symbols(pickle);
  NestedStorages nested(text_offset, part);
  TRY(nested.resolve(pickle));
  TRY(expand_modules(pickle, options.selection));
  TRY_ASSIGN(auto named, name_modules_or_tensors(pickle, options));
  return add_tensors(
      pickle, std::move(named), options,
      [&](const TensorDeclaration& declared) {
        auto inner = nested.find(declared);
        return inner ? *std::move(inner) : find(declared);
      },
      part);
}

}  // namespace onnx_external
