#include "checkpoint/torch/numpy_arrays.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/torch/pickle_bytes.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 14> kArrayTypes = {{
    {"f8", DType::kFloat64},
    {"f4", DType::kFloat32},
    {"f2", DType::kFloat16},
    {"i8", DType::kInt64},
    {"i4", DType::kInt32},
    {"i2", DType::kInt16},
    {"i1", DType::kInt8},
    {"u8", DType::kUInt64},
    {"u4", DType::kUInt32},
    {"u2", DType::kUInt16},
    {"u1", DType::kUInt8},
    {"b1", DType::kBool},
    {"c16", DType::kComplex128},
    {"c8", DType::kComplex64},
}};

// "f4" and the like, or a class of ml_dtypes that is the class of one of torch's types (its
// float4_e2m1fn has one value in a byte, torch's two).
Result<DType> read_type_argument(const Pickle& pickle, NodeId id) {
  const bool is_class = pickle.kind(id) == NodeKind::kGlobal && pickle.module(id) == "ml_dtypes";
  const std::string_view code = pickle.string(id).value_or("");
  const auto* const found = std::find_if(kArrayTypes.begin(), kArrayTypes.end(),
                                         [&](const auto& known) { return known.first == code; });
  const auto dtype = is_class                     ? dtype_from_torch_name(pickle.name(id))
                     : found == kArrayTypes.end() ? std::nullopt
                                                  : std::optional(found->second);
  if (!dtype) {
    return unsupported("its numpy dtype " +
                       quote(code.empty() ? type_name(pickle, id) : std::string(code)) +
                       " is not a type that a tensor can hold; leave it out, or save numbers");
  }
  return *dtype;
}

// numpy.dtype("f4", False, True) with the state (3, "<", None, None, None, -1, -1, 0).
Status read_type(const Pickle& pickle, NodeId id, TensorDeclaration& array) {
  if (call_of(pickle, id) != Call::kArrayType) {
    return unsupported("its element type is " + quote(type_name(pickle, id)) +
                       ", which is not supported");
  }
  const Arguments arguments = pickle.tuple(pickle.arguments(id));
  if (arguments.empty()) {
    return corrupt("its numpy dtype has no name");
  }
  TRY_ASSIGN(array.dtype, read_type_argument(pickle, arguments[0]));
  const std::vector<NodeId> states = pickle.states(id, 2);
  const Arguments state = states.size() == 1 ? pickle.tuple(states[0]) : Arguments();
  const auto order = state.size() >= 2 ? pickle.string(state[1]) : std::nullopt;
  if (!states.empty() && order != "<" && order != ">" && order != "|" && order != "=") {
    return corrupt("its numpy dtype does not have a valid byte order");
  }
  // Without a state, or as "=", it is the order of the machine that wrote it: little-endian ones
  // write "<", so torch's own loader would read these as such too.
  array.byte_order = order == ">" ? ByteOrder::kBig : ByteOrder::kLittle;
  return {};
}

// Row-major strides, or column-major ones for Fortran order.
std::vector<std::int64_t> strides_of(const Shape& shape, bool fortran) {
  if (!fortran) {
    return contiguous_strides(shape);
  }
  auto strides = contiguous_strides(Shape(shape.rbegin(), shape.rend()));
  std::reverse(strides.begin(), strides.end());
  return strides;
}

Status read_shape(const Pickle& pickle, NodeId id, bool fortran, TensorDeclaration& array) {
  TRY_ASSIGN(array.shape, read_integers(pickle, id, "shape"));
  TRY(element_count(array.shape));
  array.strides = strides_of(array.shape, fortran);
  return {};
}

// The parts of an array. The shape is empty for a scalar.
struct Parts {
  NodeId type;
  std::optional<NodeId> shape;
  bool fortran = false;
  NodeId bytes;
};

Result<TensorDeclaration> read_parts(const Pickle& pickle, const Parts& parts) {
  TensorDeclaration array;
  TRY(read_type(pickle, parts.type, array));
  if (parts.shape) {
    TRY(read_shape(pickle, *parts.shape, parts.fortran, array));
  }
  array.bytes = spelled_bytes(pickle, parts.bytes);
  return array.bytes ? Result<TensorDeclaration>(std::move(array))
                     : corrupt("its data is not a bytes object");
}

// The state (1, shape, dtype, is Fortran, bytes).
Result<TensorDeclaration> from_state(const Pickle& pickle, NodeId id) {
  const std::vector<NodeId> states = pickle.states(id, 2);
  const Arguments state = states.size() == 1 ? pickle.tuple(states[0]) : Arguments();
  const auto fortran = state.size() == 5 ? pickle.boolean(state[3]) : std::nullopt;
  if (!fortran || pickle.integer(state[0]) != 1) {
    return unsupported("it is a numpy array without a state (1, shape, dtype, order, bytes)");
  }
  return read_parts(pickle,
                    {.type = state[2], .shape = state[1], .fortran = *fortran, .bytes = state[4]});
}

Result<TensorDeclaration> from_buffer(const Pickle& pickle, Arguments arguments) {
  const auto order = arguments.size() == 4 ? pickle.string(arguments[3]) : std::nullopt;
  if (order != "C" && order != "F") {
    return corrupt("its numpy buffer is not (bytes, dtype, shape, order)");
  }
  return read_parts(pickle, {.type = arguments[1],
                             .shape = arguments[2],
                             .fortran = order == "F",
                             .bytes = arguments[0]});
}

Result<TensorDeclaration> from_scalar(const Pickle& pickle, Arguments arguments) {
  if (arguments.size() != 2) {
    return corrupt("its numpy scalar is not (dtype, bytes)");
  }
  return read_parts(pickle, {.type = arguments[0], .shape = std::nullopt, .bytes = arguments[1]});
}

}  // namespace

bool is_array(const Pickle& pickle, NodeId id) {
  switch (call_of(pickle, id)) {
    case Call::kArray: {
      const Arguments arguments = pickle.tuple(pickle.arguments(id));
      return !arguments.empty() && pickle.kind(arguments[0]) == NodeKind::kGlobal &&
             pickle.module(arguments[0]) == "numpy" && pickle.name(arguments[0]) == "ndarray";
    }
    case Call::kBufferArray:
    case Call::kArrayScalar:
      return true;
    default:
      return false;
  }
}

Result<TensorDeclaration> declared_array(const Pickle& pickle, NodeId id) {
  if (pickle.has_items(id) || pickle.has_elements(id)) {
    return corrupt("the pickle adds items to a numpy array");
  }
  const Arguments arguments = pickle.tuple(pickle.arguments(id));
  const Call call = call_of(pickle, id);
  if (call == Call::kArray) {
    return from_state(pickle, id);
  }
  if (!pickle.states(id, 1).empty()) {
    return unsupported("a state is set on a finished numpy value");
  }
  return call == Call::kBufferArray ? from_buffer(pickle, arguments)
                                    : from_scalar(pickle, arguments);
}

}  // namespace onnx_external
