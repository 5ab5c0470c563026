#include "checkpoint/torch/wrapped_weight.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/torch/torch_objects.h"
#include "checkpoint/torch/torch_symbols.h"
#include "checkpoint/torch/wrapped_tensor.h"

namespace onnx_external {
namespace {

// A class of torchao: the attribute with its codes, or with the one tensor that it wraps.
struct WeightClass {
  std::string_view name;
  std::string_view codes;
  std::string_view wraps = {};
};

constexpr std::array kWeightClasses = {
    WeightClass{"IntxUnpackedToInt8Tensor", "qdata"},
    WeightClass{"Int8Tensor", "qdata"},
    WeightClass{"Int4Tensor", "qdata"},
    WeightClass{"Float8Tensor", "qdata"},
    WeightClass{"MXTensor", "qdata"},
    WeightClass{"NVFP4Tensor", "qdata"},
    WeightClass{"LinearActivationQuantizedTensor", "", "original_weight_tensor"},
    WeightClass{"AffineQuantizedTensor", "", "tensor_impl"},
    WeightClass{"PlainAQTTensorImpl", "int_data"},
    WeightClass{"QDQTensorImpl", "int_data"},
    WeightClass{"Float8AQTTensorImpl", "float8_data"},
};

constexpr std::string_view kCodes = "qdata";
constexpr std::string_view kScale = "scale";

// The other tensors that a class may have.
constexpr std::array<std::string_view, 6> kOtherParts = {
    "zero_point",      "per_tensor_scale",     "act_pre_scale",
    "act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale"};

constexpr std::string_view kPlain = "; save tensor.dequantize() instead";

using Attributes = std::map<std::string_view, NodeId>;

// A call _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, ...), state).
struct WrapperCall {
  NodeId object = 0;
  std::string type;
  const WeightClass* known = nullptr;  // null: another class than those above
  Arguments rebuild;
  Attributes attributes;
};

const WeightClass* known_class(const Pickle& pickle, NodeId type) {
  const auto* const found =
      std::find_if(kWeightClasses.begin(), kWeightClasses.end(),
                   [&](const WeightClass& known) { return known.name == pickle.name(type); });
  return pickle.module(type).starts_with("torchao.") && found != kWeightClasses.end() ? found
                                                                                      : nullptr;
}

std::optional<WrapperCall> wrapper_call(const Pickle& pickle, NodeId node) {
  constexpr std::size_t kArguments = 4;
  const Arguments arguments =
      call_of(pickle, node) == Call::kFromType ? pickle.tuple(pickle.arguments(node)) : Arguments();
  const Symbol* const made =
      arguments.size() == kArguments ? find_symbol(pickle, arguments[0]) : nullptr;
  const Arguments rebuild =
      made != nullptr && made->call == Call::kWrapper ? pickle.tuple(arguments[2]) : Arguments();
  if (rebuild.empty() || pickle.kind(rebuild[0]) != NodeKind::kGlobal) {
    return std::nullopt;
  }
  return WrapperCall{node, type_name(pickle, rebuild[0]), known_class(pickle, rebuild[0]), rebuild,
                     attributes_of_state(pickle, arguments[3])};
}

// Returns whether zero points are integers, or there are none. The value of the enum is pickled as
// ZeroPointDomain(1), or as getattr(ZeroPointDomain, "INT") by Python 3.11.
bool has_integer_zeros(const Pickle& pickle, const Attributes& attributes) {
  const auto domain = attributes.find("zero_point_domain");
  if (domain == attributes.end() || pickle.kind(domain->second) == NodeKind::kNone) {
    return true;
  }
  if (pickle.kind(domain->second) != NodeKind::kObject) {
    return false;
  }
  const Arguments value = pickle.tuple(pickle.arguments(domain->second));
  const auto number = value.empty() ? std::nullopt : pickle.integer(value.back());
  const auto name = value.empty() ? std::nullopt : pickle.string(value.back());
  return number == 1 || number == 3 || name == "INT" || name == "NONE";
}

// Returns whether an AffineQuantizedTensor has one scale for each column: its list of scales does
// not tell them from those of rows.
bool has_scales_of_columns(const Pickle& pickle, const WrapperCall& call) {
  const auto block = call.attributes.find("block_size");
  const auto size = block == call.attributes.end() || call.known->wraps.empty()
                        ? std::vector<std::int64_t>()
                        : read_integers(pickle, block->second, "block").value_or(Shape());
  return size.size() == 2 && size[0] > 1 && size[1] == 1;
}

Status check_variant(const Pickle& pickle, const WrapperCall& call) {
  if (pickle.has_items(call.object) || pickle.has_elements(call.object) ||
      !pickle.states(call.object, 1).empty()) {
    return unsupported("it is a " + quote(call.type) + " that is changed after it was made" +
                       std::string(kPlain));
  }
  if (has_scales_of_columns(pickle, call)) {
    return unsupported("it is a " + quote(call.type) + " with scales of columns" +
                       std::string(kPlain));
  }
  const auto transposed = call.attributes.find("transposed");
  if (transposed != call.attributes.end() && pickle.boolean(transposed->second).value_or(false)) {
    return unsupported("it is a " + quote(call.type) + " that is transposed" + std::string(kPlain));
  }
  if (!has_integer_zeros(pickle, call.attributes)) {
    return unsupported("it is a " + quote(call.type) + " whose zero points are not integers" +
                       std::string(kPlain));
  }
  return {};
}

tl::unexpected<Error> lacks(const WrapperCall& call, std::string_view attribute) {
  return corrupt("it is a " + quote(call.type) + " without the tensor " + quote(attribute) +
                 "; save the model again with torchao");
}

Status add_parts(const Pickle& pickle, const WrapperCall& call, WrappedWeight& weight) {
  for (const auto& [attribute, value] : call.attributes) {
    if (!is_torch_tensor(pickle, value)) {
      continue;
    }
    const std::string_view name = attribute == call.known->codes ? kCodes : attribute;
    if (name != kCodes && name != kScale &&
        std::find(kOtherParts.begin(), kOtherParts.end(), name) == kOtherParts.end()) {
      return unsupported("it is a " + quote(call.type) + " with a tensor " + quote(attribute) +
                         ", which is not known" + std::string(kPlain));
    }
    weight.parts.emplace_back(name, value);
  }
  for (const std::string_view needed : {kCodes, kScale}) {
    if (std::none_of(weight.parts.begin(), weight.parts.end(),
                     [&](const auto& part) { return part.first == needed; })) {
      return lacks(call, needed == kCodes ? call.known->codes : needed);
    }
  }
  return {};
}

}  // namespace

Result<std::optional<WrappedWeight>> wrapped_weight(const Pickle& pickle, NodeId node) {
  constexpr int kMaxWrappers = 4;
  constexpr std::size_t kShape = 2;
  auto call = wrapper_call(pickle, node);
  if (!call || call->known == nullptr) {
    return std::nullopt;
  }
  if (call->rebuild.size() <= kShape) {
    return corrupt("its rebuild call has too few arguments");
  }
  WrappedWeight weight;
  weight.type = call->type;
  TRY_ASSIGN(weight.shape, read_integers(pickle, call->rebuild[kShape], "shape"));
  for (int depth = 0; depth < kMaxWrappers && call->known != nullptr; ++depth) {
    if (call->known->wraps.empty()) {
      TRY(check_variant(pickle, *call));
      TRY(add_parts(pickle, *call, weight));
      return weight;
    }
    const auto inner = call->attributes.find(call->known->wraps);
    auto next =
        inner == call->attributes.end() ? std::nullopt : wrapper_call(pickle, inner->second);
    if (!next) {
      return lacks(*call, call->known->wraps);
    }
    TRY(next->known == nullptr ? Status() : check_variant(pickle, *call));
    call = std::move(next);
  }
  return unsupported("it is a " + quote(weight.type) + " that holds a " + quote(call->type) +
                     ", which is not supported" + std::string(kPlain));
}

}  // namespace onnx_external
