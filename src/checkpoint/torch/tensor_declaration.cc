#include "checkpoint/torch/tensor_declaration.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/torch/numpy_arrays.h"
#include "checkpoint/torch/tensor_states.h"
#include "checkpoint/torch/torch_symbols.h"
#include "checkpoint/torch/wrapped_tensor.h"

namespace onnx_external {
namespace {

// The readers below take the arguments that torch's function must have for granted. A later torch
// may give them more, which could change the values: those are unsupported, not damage.
Status check_arity(Arity arity, std::size_t count) {
  if (count < arity.least) {
    return corrupt("its rebuild call has too few arguments");
  }
  if (count > arity.most) {
    return unsupported("its rebuild call has " + std::to_string(count) +
                       " arguments, but torch accepts at most " + std::to_string(arity.most));
  }
  return {};
}

// The persistent id ('storage', class, key, location, numel).
Status read_storage(const Pickle& pickle, NodeId id, TensorDeclaration& tensor, bool& quantized) {
  if (pickle.kind(id) == NodeKind::kObject) {
    return unsupported("its storage comes from " + quote(type_name(pickle, id)) +
                       "; save it again with torch.save");
  }
  if (pickle.kind(id) != NodeKind::kPersistent) {
    return corrupt("it has no storage");
  }
  const Arguments parts = pickle.tuple(pickle.persistent_id(id));
  if (parts.size() != 5 || pickle.string(parts[0]) != "storage") {
    return corrupt("its storage is not ('storage', class, key, location, numel)");
  }
  TRY_ASSIGN(const auto type, storage_class_of(pickle, parts[1]));
  if (pickle.string(parts[3]) == "meta") {
    return unsupported(
        "its storage is on the meta device, which has no data; load the weights "
        "into the model before it is saved");
  }
  constexpr std::size_t kMaxKeyBytes = 1024;
  if (const auto key = pickle.string(parts[2]); key && key->size() <= kMaxKeyBytes) {
    tensor.storage_key = *key;
  } else if (const auto number = pickle.integer(parts[2])) {
    tensor.storage_key = std::to_string(*number);
  } else {
    return corrupt("its storage has no key");
  }
  const auto numel = pickle.integer(parts[4]);
  if (!numel || *numel < 0) {
    return corrupt("its storage does not have a valid number of elements");
  }
  const auto bytes =
      checked_mul<std::uint64_t>(static_cast<std::uint64_t>(*numel), byte_size(type.dtype));
  if (!bytes) {
    return corrupt("its storage has too many elements");
  }
  tensor.storage_bytes = *bytes;
  tensor.dtype = type.dtype;
  quantized = type.quantized;
  return {};
}

// {'conj': True} or {'neg': True}: the bytes are not the values. TorchScript tags it as a dict.
Status read_view_bits(const Pickle& pickle, NodeId metadata, TensorDeclaration& tensor) {
  constexpr std::size_t kMaxBits = 8;
  if (call_of(pickle, metadata) == Call::kTypeTag) {
    const Arguments tagged = pickle.tuple(pickle.arguments(metadata));
    metadata = tagged.empty() ? metadata : tagged[0];
  }
  TRY_ASSIGN(const auto bits, few_items(pickle, metadata, kMaxBits, "metadata", ""));
  for (const auto& [key, value] : bits) {
    const auto name = pickle.string(key).value_or("?");
    const auto bit = pickle.boolean(value);
    if (!bit || (*bit && name != "conj" && name != "neg")) {
      return unsupported("its metadata sets " + quote(name) +
                         "; save tensor.detach().clone() instead");
    }
    tensor.conj = tensor.conj || (*bit && name == "conj");
    tensor.neg = tensor.neg || (*bit && name == "neg");
  }
  return {};
}

// (storage, offset, size, stride, ...), which all strided tensors begin with.
Result<TensorDeclaration> read_strided(const Pickle& pickle, Arguments arguments, bool quantized) {
  TensorDeclaration tensor;
  bool quantized_storage = false;
  TRY(read_storage(pickle, arguments[0], tensor, quantized_storage));
  if (quantized_storage != quantized) {
    return corrupt(quantized
                       ? "its storage class is not a class for quantized tensors"
                       : "its storage class is for quantized tensors, but the tensor has no scale");
  }
  const auto offset = pickle.integer(arguments[1]);
  if (!offset || *offset < 0) {
    return corrupt("its storage offset is not a valid int");
  }
  tensor.offset = *offset;
  auto shape = read_integers(pickle, arguments[2], "shape");
  TRY_ASSIGN(auto strides, shape ? read_integers(pickle, arguments[3], "stride") : shape);
  tensor.shape = *std::move(shape);
  tensor.strides = std::move(strides);
  return tensor;
}

Result<TensorDeclaration> read_rebuild(const Pickle& pickle, Call call, Arguments arguments) {
  const bool v3 = call == Call::kTensorV3;
  auto tensor = read_strided(pickle, arguments, false);
  if (tensor && v3) {
    TRY_ASSIGN(tensor->dtype, read_dtype(pickle, arguments[6]));
  }
  const std::size_t metadata = v3 ? 7 : 6;
  if (tensor && arguments.size() > metadata) {
    TRY(read_view_bits(pickle, arguments[metadata], *tensor));
  }
  return tensor;
}

std::optional<double> number(const Pickle& pickle, NodeId id) {
  if (const auto integer = pickle.integer(id)) {
    return static_cast<double>(*integer);
  }
  return pickle.real(id);
}

// (scheme, scale, zero point), or (scheme, scales, zero points, axis).
Result<Quantizer> read_quantizer(const Pickle& pickle, NodeId id) {
  const Arguments parts = pickle.tuple(id);
  const bool named = !parts.empty() && pickle.kind(parts[0]) == NodeKind::kGlobal &&
                     pickle.module(parts[0]) == "torch";
  const std::string_view scheme = named ? pickle.name(parts[0]) : "";
  Quantizer quantizer{.per_channel = scheme.starts_with("per_channel_")};
  if (quantizer.per_channel && parts.size() == 4) {
    const auto axis = pickle.integer(parts[3]);
    if (!axis) {
      return corrupt("its quantizer has no axis");
    }
    quantizer.scales = parts[1];
    quantizer.zero_points = parts[2];
    quantizer.axis = *axis;
    return quantizer;
  }
  if (scheme.starts_with("per_tensor_") && parts.size() == 3) {
    const auto scale = number(pickle, parts[1]);
    const auto zero_point = pickle.integer(parts[2]);
    if (!scale || !zero_point) {
      return corrupt("its quantizer has no scale and zero point");
    }
    quantizer.scale = *scale;
    quantizer.zero_point = *zero_point;
    return quantizer;
  }
  return unsupported("its quantizer " + quote(scheme) +
                     " is not supported; save tensor.dequantize()");
}

Result<TensorDeclaration> read_quantized(const Pickle& pickle, Arguments arguments) {
  TRY_ASSIGN(auto tensor, read_strided(pickle, arguments, true));
  TRY_ASSIGN(tensor.quantizer, read_quantizer(pickle, arguments[4]));
  return tensor;
}

std::optional<SparseLayout> read_layout(const Pickle& pickle, NodeId id) {
  constexpr std::array<std::pair<std::string_view, SparseLayout>, 5> kLayouts = {{
      {"torch.sparse_coo", SparseLayout::kCoo},
      {"torch.sparse_csr", SparseLayout::kCsr},
      {"torch.sparse_csc", SparseLayout::kCsc},
      {"torch.sparse_bsr", SparseLayout::kBsr},
      {"torch.sparse_bsc", SparseLayout::kBsc},
  }};
  if (call_of(pickle, id) != Call::kLayout) {
    return std::nullopt;
  }
  const Arguments arguments = pickle.tuple(pickle.arguments(id));
  const auto name = arguments.size() == 1 ? pickle.string(arguments[0]) : std::nullopt;
  const auto* const found = std::find_if(kLayouts.begin(), kLayouts.end(),
                                         [&](const auto& known) { return known.first == name; });
  return found == kLayouts.end() ? std::nullopt : std::optional(found->second);
}

// (layout, (indices, values, size[, coalesced])) or (layout, (compressed, plain, values, size)).
Result<TensorDeclaration> read_sparse(const Pickle& pickle, Arguments arguments) {
  const auto layout = read_layout(pickle, arguments[0]);
  if (!layout) {
    return unsupported("its sparse layout is not supported; save tensor.to_dense() instead");
  }
  const Arguments parts = pickle.tuple(arguments[1]);
  const bool coo = *layout == SparseLayout::kCoo;
  if (coo ? parts.size() != 3 && parts.size() != 4 : parts.size() != 4) {
    return corrupt("its sparse data has the wrong number of parts");
  }
  const std::size_t skipped = coo ? 0 : 1;  // the compressed indices stand in front
  TRY_ASSIGN(auto shape, read_integers(pickle, parts[skipped + 2], "shape"));
  TensorDeclaration tensor;
  tensor.shape = std::move(shape);
  tensor.sparse = SparseParts{.layout = *layout,
                              .data = arguments[1],
                              .compressed = coo ? 0 : parts[0],
                              .indices = parts[skipped],
                              .values = parts[skipped + 1]};
  return tensor;
}

// tensor.to(dtype): read only when nothing is to convert.
Status convert(const Pickle& pickle, Arguments arguments, std::optional<DType>& converted) {
  TRY_ASSIGN(const auto dtype, read_dtype(pickle, arguments[1]));
  if (converted.value_or(dtype) != dtype) {
    return unsupported("it is converted between types when it is loaded");
  }
  converted = dtype;
  return {};
}

// bfloat16 tensors are widened to float32 to become arrays: the upper halves are what they were.
void narrow(TensorDeclaration& tensor) {
  tensor.dtype = DType::kBFloat16;
  tensor.upper_halves = true;
  tensor.offset = 2 * tensor.offset + 1;
  for (std::int64_t& stride : tensor.strides) {
    stride = checked_mul<std::int64_t>(stride, 2).value_or(-1);  // refused as negative
  }
}

Result<TensorDeclaration> of_type(Result<TensorDeclaration> tensor,
                                  const std::optional<DType>& wanted) {
  if (!tensor || !wanted || *wanted == tensor->dtype) {
    return tensor;
  }
  if (tensor->bytes && tensor->byte_order == ByteOrder::kLittle &&
      tensor->dtype == DType::kFloat32 && *wanted == DType::kBFloat16) {
    narrow(*tensor);
    return tensor;
  }
  return unsupported("it is stored as " + std::string(torch_name(tensor->dtype)) +
                     " and converted to " + std::string(torch_name(*wanted)) +
                     " when it is loaded; save it again from the CPU");
}

// Reads the call that makes a tensor, without the calls that wrap it.
Result<TensorDeclaration> read_made(const Pickle& pickle, const Symbol& symbol, NodeId object,
                                    Arguments arguments) {
  switch (symbol.call) {
    case Call::kTensor:
    case Call::kTensorV3:
      return read_rebuild(pickle, symbol.call, arguments);
    case Call::kQuantized:
      return read_quantized(pickle, arguments);
    case Call::kSparse:
      return read_sparse(pickle, arguments);
    case Call::kWrapper:
    case Call::kUnsupported:
      return unsupported("it is " + std::string(symbol.refusal));
    default:
      break;
  }
  if (object != 0 && is_array(pickle, object)) {
    return declared_array(pickle, object);
  }
  return corrupt("a parameter that holds " +
                 quote(std::string(symbol.module) + "." + std::string(symbol.name)));
}

// The call that makes a tensor, and what the calls around it ask for.
struct MakingCall {
  NodeId object = 0;  // 0 for a call that was not made yet
  NodeId callable = 0;
  NodeId arguments = 0;
  std::optional<DType> converted = {};
  std::optional<Shape> whole = {};  // of the DTensor that it must be all of
};

Status enter(const Pickle& pickle, NodeId object, MakingCall& call) {
  if (pickle.kind(object) != NodeKind::kObject) {
    return corrupt("a parameter without a tensor");
  }
  call.object = object;
  call.callable = pickle.callable(object);
  call.arguments = pickle.arguments(object);
  return {};
}

// (_rebuild_wrapper_subclass, class, its arguments, state)
Status enter_wrapper(const Pickle& pickle, Arguments arguments, MakingCall& call) {
  TRY_ASSIGN(auto local, local_tensor(pickle, pickle.tuple(arguments[2]), arguments[3]));
  if (call.whole) {
    TRY(check_whole(local.shape, *call.whole));
  }
  call.whole = std::move(local.shape);
  return enter(pickle, local.tensor, call);
}

// Takes the outermost wrapper off.
Status unwrap(const Pickle& pickle, Call wrapper, Arguments arguments, MakingCall& call) {
  constexpr std::size_t kState = 3;  // argument of parameters with one, and of subclasses
  if (wrapper == Call::kConverted) {
    TRY(convert(pickle, arguments, call.converted));
    return enter(pickle, arguments[0], call);
  }
  if (wrapper == Call::kWrapped) {
    TRY(enter(pickle, arguments[0], call));
  } else if (const Symbol* made = find_symbol(pickle, arguments[0]);
             made != nullptr && made->call == Call::kWrapper) {
    TRY(enter_wrapper(pickle, arguments, call));
  } else {
    call = {.callable = arguments[0],
            .arguments = arguments[2],
            .converted = call.converted,
            .whole = std::move(call.whole)};
  }
  return arguments.size() > kState ? check_state(pickle, arguments[kState]) : Status();
}

// Reads the result of the call in the form that the calls around it require.
Result<TensorDeclaration> read_wanted(const Pickle& pickle, const Symbol& symbol,
                                      const MakingCall& call) {
  auto tensor =
      of_type(read_made(pickle, symbol, call.object, pickle.tuple(call.arguments)), call.converted);
  if (tensor && call.whole) {
    TRY(check_whole(tensor->shape, *call.whole));
  }
  return tensor;
}

}  // namespace

Result<TensorDeclaration> declared_storage(const Pickle& pickle, NodeId id) {
  TensorDeclaration storage;
  bool quantized = false;
  TRY(read_storage(pickle, id, storage, quantized));
  return storage;
}

Result<TensorDeclaration> declared_tensor(const Pickle& pickle, NodeId id) {
  constexpr int kMaxWrappers = 16;  // Parameter of a subclass of ...
  MakingCall call;
  TRY(enter(pickle, id, call));
  for (int depth = 0; depth < kMaxWrappers; ++depth) {
    if (call.object != 0 && !is_array(pickle, call.object)) {
      TRY(check_additions(pickle, call.object));
    }
    const Symbol* symbol = find_symbol(pickle, call.callable);
    const Arguments arguments = pickle.tuple(call.arguments);
    if (symbol == nullptr) {
      return unsupported("it is made by " + quote(type_name(pickle, call.callable)));
    }
    TRY(check_arity(symbol->arity, arguments.size()));
    if (symbol->call != Call::kConverted && symbol->call != Call::kWrapped &&
        symbol->call != Call::kFromType) {
      return read_wanted(pickle, *symbol, call);
    }
    TRY(unwrap(pickle, symbol->call, arguments, call));
  }
  return corrupt("too many wrappers around a tensor");
}

}  // namespace onnx_external
