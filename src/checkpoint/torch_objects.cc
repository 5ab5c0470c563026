#include "checkpoint/torch_objects.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/checked_math.h"
#include "base/text.h"
#include "checkpoint/contents.h"

namespace onnx_external {
namespace {

// The calls that make tensors, by what this reader does with them.
enum class Call : std::uint8_t {
  kNone,
  kTensor,       // (storage, offset, size, stride, ...)
  kTensorV3,     // the same, with a dtype
  kWrapped,      // (tensor, flag, hooks, state): at least the first
  kConverted,    // (tensor, dtype, ...)
  kFromType,     // (function, type, arguments, state)
  kOrderedDict,  // ([pairs])
  kSize,         // ((dimensions))
  kUnsupported,
};

struct Symbol {
  std::string_view module;
  std::string_view name;
  Call call;
  std::string_view refusal = {};
};

constexpr std::array kSymbols = {
    Symbol{"torch._utils", "_rebuild_tensor", Call::kTensor},
    Symbol{"torch._utils", "_rebuild_tensor_v2", Call::kTensor},
    Symbol{"torch._utils", "_rebuild_tensor_v3", Call::kTensorV3},
    Symbol{"torch._utils", "_rebuild_parameter", Call::kWrapped},
    Symbol{"torch._utils", "_rebuild_parameter_with_state", Call::kWrapped},
    Symbol{"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", Call::kConverted},
    Symbol{"torch.nn.parameter", "Parameter", Call::kWrapped},
    Symbol{"torch.nn.parameter", "Buffer", Call::kWrapped},
    Symbol{"torch._tensor", "_rebuild_from_type", Call::kFromType},
    Symbol{"torch._tensor", "_rebuild_from_type_v2", Call::kFromType},
    Symbol{"torch.tensor", "_rebuild_from_type", Call::kFromType},
    Symbol{"torch.tensor", "_rebuild_from_type_v2", Call::kFromType},
    Symbol{"collections", "OrderedDict", Call::kOrderedDict},
    Symbol{"torch", "Size", Call::kSize},
    Symbol{"torch._utils", "_rebuild_sparse_tensor", Call::kUnsupported, "a sparse tensor"},
    Symbol{"torch._utils", "_rebuild_sparse_csr_tensor", Call::kUnsupported, "a sparse tensor"},
    Symbol{"torch._utils", "_rebuild_nested_tensor", Call::kUnsupported, "a nested tensor"},
    Symbol{"torch._utils", "_rebuild_qtensor", Call::kUnsupported, "a quantized tensor"},
    Symbol{"torch._utils", "_rebuild_meta_tensor_no_storage", Call::kUnsupported,
           "a meta tensor, which has no data"},
    Symbol{"torch._utils", "_rebuild_device_tensor_from_numpy", Call::kUnsupported,
           "a tensor held as a numpy array"},
    Symbol{"torch._utils", "_rebuild_xla_tensor", Call::kUnsupported,
           "a tensor held as a numpy array"},
    Symbol{"torch._utils", "_rebuild_wrapper_subclass", Call::kUnsupported,
           "a tensor subclass that wraps other tensors"},
};

const Symbol* find_symbol(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kGlobal) {
    return nullptr;
  }
  const std::string_view name = pickle.name(id);
  const std::string_view module = pickle.module(id);
  const auto found = std::find_if(kSymbols.begin(), kSymbols.end(), [&](const Symbol& symbol) {
    return symbol.name == name && symbol.module == module;
  });
  return found == kSymbols.end() ? nullptr : &*found;
}

Call call_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kObject) {
    return Call::kNone;
  }
  const Symbol* symbol = find_symbol(pickle, pickle.callable(id));
  return symbol == nullptr ? Call::kNone : symbol->call;
}

using Arguments = std::span<const NodeId>;

Arguments tuple_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kTuple) {
    return {};
  }
  const auto [first, count] = pickle.tuple(id);
  return {first, count};
}

tl::unexpected<Error> corrupt(std::string what) {
  return fail(ErrorCode::kCorrupt, std::move(what));
}
tl::unexpected<Error> unsupported(std::string what) {
  return fail(ErrorCode::kUnsupported, std::move(what));
}

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr std::array kStorageClasses = {
    StorageClass{"DoubleStorage", DType::kFloat64},
    StorageClass{"FloatStorage", DType::kFloat32},
    StorageClass{"HalfStorage", DType::kFloat16},
    StorageClass{"BFloat16Storage", DType::kBFloat16},
    StorageClass{"LongStorage", DType::kInt64},
    StorageClass{"IntStorage", DType::kInt32},
    StorageClass{"ShortStorage", DType::kInt16},
    StorageClass{"CharStorage", DType::kInt8},
    StorageClass{"ByteStorage", DType::kUInt8},
    StorageClass{"BoolStorage", DType::kBool},
    StorageClass{"ComplexFloatStorage", DType::kComplex64},
    StorageClass{"ComplexDoubleStorage", DType::kComplex128},
    StorageClass{"UntypedStorage", DType::kUInt8},  // its numel counts bytes
    StorageClass{"_UntypedStorage", DType::kUInt8},
    // Only TorchScript's pickler writes these: c10's names of the newer types.
    StorageClass{"ComplexHalfStorage", DType::kComplex32},
    StorageClass{"UInt16Storage", DType::kUInt16},
    StorageClass{"UInt32Storage", DType::kUInt32},
    StorageClass{"UInt64Storage", DType::kUInt64},
    StorageClass{"Float8_e4m3fnStorage", DType::kFloat8E4M3Fn},
    StorageClass{"Float8_e4m3fnuzStorage", DType::kFloat8E4M3FnUz},
    StorageClass{"Float8_e5m2Storage", DType::kFloat8E5M2},
    StorageClass{"Float8_e5m2fnuzStorage", DType::kFloat8E5M2FnUz},
    StorageClass{"Float8_e8m0fnuStorage", DType::kFloat8E8M0FnU},
    StorageClass{"Float4_e2m1fn_x2Storage", DType::kFloat4E2M1FnX2},
};

Result<DType> storage_dtype(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kGlobal) {
    return corrupt("its storage has no class");
  }
  const std::string_view module = pickle.module(id);
  const std::string_view name = pickle.name(id);
  const auto found = std::find_if(kStorageClasses.begin(), kStorageClasses.end(),
                                  [&](const StorageClass& known) { return known.name == name; });
  const bool torch_module =
      module == "torch" || module == "torch.cuda" || module == "torch.storage";
  if (!torch_module || found == kStorageClasses.end()) {
    return unsupported("storage class " + quote(type_name(pickle, id)) + " is not read");
  }
  return found->dtype;
}

// The persistent id ('storage', class, key, location, numel).
Status read_storage(const Pickle& pickle, NodeId id, TensorDeclaration& tensor) {
  if (pickle.kind(id) == NodeKind::kObject) {
    return unsupported("its storage comes from " + quote(type_name(pickle, id)) +
                       "; save it again with torch.save");
  }
  if (pickle.kind(id) != NodeKind::kPersistent) {
    return corrupt("it has no storage");
  }
  const Arguments parts = tuple_of(pickle, pickle.persistent_id(id));
  if (parts.size() != 5 || pickle.string(parts[0]) != "storage") {
    return corrupt("its storage is not ('storage', class, key, location, numel)");
  }
  const auto dtype = storage_dtype(pickle, parts[1]);
  if (!dtype) {
    return fail(dtype.error());
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
    return corrupt("its storage has no valid number of elements");
  }
  const auto bytes =
      checked_mul<std::uint64_t>(static_cast<std::uint64_t>(*numel), byte_size(*dtype));
  if (!bytes) {
    return corrupt("its storage has too many elements");
  }
  tensor.storage_bytes = *bytes;
  tensor.dtype = *dtype;
  return {};
}

// A tuple of ints, a list of them, or torch.Size of one.
Result<std::vector<std::int64_t>> read_integers(const Pickle& pickle, NodeId id,
                                                std::string_view what) {
  if (call_of(pickle, id) == Call::kSize) {
    const Arguments arguments = tuple_of(pickle, pickle.arguments(id));
    if (arguments.size() == 1) {
      id = arguments[0];
    }
  }
  std::vector<NodeId> nodes = pickle.elements(id, kMaxRank + 1);
  const Arguments tuple = tuple_of(pickle, id);
  nodes.insert(nodes.end(), tuple.begin(), tuple.end());
  if (pickle.kind(id) != NodeKind::kTuple && pickle.kind(id) != NodeKind::kList) {
    return corrupt("its " + std::string(what) + " is not a tuple of ints");
  }
  if (nodes.size() > kMaxRank) {
    return corrupt("its " + std::string(what) + " has more than " + std::to_string(kMaxRank) +
                   " dimensions");
  }
  std::vector<std::int64_t> values;
  for (const NodeId node : nodes) {
    const auto value = pickle.integer(node);
    if (!value) {
      return corrupt("its " + std::string(what) + " is not a tuple of ints");
    }
    values.push_back(*value);
  }
  return values;
}

// {'conj': True} or {'neg': True}: the bytes are not the values. torch writes a plain dict with at
// most these two; an object that would become a dict could hide them.
Status check_view_bits(const Pickle& pickle, NodeId metadata) {
  constexpr std::size_t kMaxBits = 8;
  if (pickle.kind(metadata) == NodeKind::kNone) {
    return {};
  }
  const auto bits = pickle.items(metadata, kMaxBits + 1);
  if (pickle.kind(metadata) != NodeKind::kDict || bits.size() > kMaxBits) {
    return unsupported("its metadata is no dict of at most " + std::to_string(kMaxBits) + " bits");
  }
  for (const auto& [key, value] : bits) {
    if (pickle.boolean(value) != false) {
      const auto name = pickle.string(key);
      return unsupported("it is a lazy view (" + quote(name.value_or("?")) +
                         "); save tensor.resolve_conj().resolve_neg() instead");
    }
  }
  return {};
}

// Attributes may be set on a tensor; nothing that replaces its data may.
Status check_attributes(const Pickle& pickle, NodeId attributes) {
  constexpr std::size_t kMaxAttributes = 64;
  if (pickle.kind(attributes) == NodeKind::kNone) {
    return {};
  }
  const auto items = pickle.items(attributes, kMaxAttributes + 1);
  if (pickle.kind(attributes) != NodeKind::kDict || items.size() > kMaxAttributes) {
    return unsupported("its state is no dict of at most " + std::to_string(kMaxAttributes) +
                       " attributes; save tensor.detach().clone() instead");
  }
  for (const auto& [key, value] : items) {
    const auto name = pickle.string(key);
    if (!name || *name == "data" || *name == "real" || *name == "imag") {
      return unsupported("its state sets " + quote(name.value_or("?")) +
                         "; save tensor.detach().clone() instead");
    }
  }
  return {};
}

// A dict of attributes, or (dict, slots). A longer tuple is Tensor.__setstate__'s: another storage.
Status check_state(const Pickle& pickle, NodeId state) {
  const Arguments parts = tuple_of(pickle, state);
  if (parts.size() != 2) {
    return check_attributes(pickle, state);
  }
  auto status = check_attributes(pickle, parts[0]);
  return status ? check_attributes(pickle, parts[1]) : status;
}

// What was done to a tensor after the call that made it.
Status check_additions(const Pickle& pickle, NodeId tensor) {
  constexpr std::size_t kMaxStates = 4;
  if (pickle.has_items(tensor) || pickle.has_elements(tensor)) {
    return corrupt("the pickle adds items to a tensor");
  }
  const std::vector<NodeId> states = pickle.states(tensor, kMaxStates + 1);
  if (states.size() > kMaxStates) {
    return unsupported("more than " + std::to_string(kMaxStates) + " states are set on it");
  }
  for (const NodeId state : states) {
    if (auto status = check_state(pickle, state); !status) {
      return status;
    }
  }
  return {};
}

Result<DType> read_dtype(const Pickle& pickle, NodeId dtype) {
  const bool named = pickle.kind(dtype) == NodeKind::kGlobal && pickle.module(dtype) == "torch";
  const auto known = named ? dtype_from_torch_name(pickle.name(dtype)) : std::nullopt;
  if (!known) {
    return unsupported("element type " + quote(type_name(pickle, dtype)) + " is not read");
  }
  return *known;
}

Result<TensorDeclaration> read_rebuild(const Pickle& pickle, Call call, Arguments arguments) {
  const bool v3 = call == Call::kTensorV3;
  if (arguments.size() < (v3 ? 7 : 4)) {
    return corrupt("its rebuild call has too few arguments");
  }
  TensorDeclaration tensor;
  if (auto status = read_storage(pickle, arguments[0], tensor); !status) {
    return fail(std::move(status).error());
  }
  const auto offset = pickle.integer(arguments[1]);
  if (!offset || *offset < 0) {
    return corrupt("its storage offset is not a valid int");
  }
  tensor.offset = *offset;
  auto shape = read_integers(pickle, arguments[2], "shape");
  auto strides = shape ? read_integers(pickle, arguments[3], "stride") : shape;
  if (!strides) {
    return fail(std::move(strides).error());
  }
  tensor.shape = *std::move(shape);
  tensor.strides = *std::move(strides);
  if (v3) {
    const auto dtype = read_dtype(pickle, arguments[6]);
    if (!dtype) {
      return fail(dtype.error());
    }
    tensor.dtype = *dtype;
  }
  const std::size_t metadata = v3 ? 7 : 6;
  if (arguments.size() > metadata) {
    if (auto status = check_view_bits(pickle, arguments[metadata]); !status) {
      return fail(std::move(status).error());
    }
  }
  return tensor;
}

// tensor.to(dtype): read only when nothing is to convert.
Status convert(const Pickle& pickle, Arguments arguments, std::optional<DType>& converted) {
  if (arguments.size() < 2) {
    return corrupt("its rebuild call has too few arguments");
  }
  const auto dtype = read_dtype(pickle, arguments[1]);
  if (!dtype) {
    return fail(dtype.error());
  }
  if (converted.value_or(*dtype) != *dtype) {
    return unsupported("it is converted between types when it is loaded");
  }
  converted = *dtype;
  return {};
}

Result<TensorDeclaration> of_type(Result<TensorDeclaration> tensor,
                                  const std::optional<DType>& wanted) {
  if (tensor && wanted && *wanted != tensor->dtype) {
    return unsupported("it is stored as " + std::string(torch_name(tensor->dtype)) +
                       " and converted to " + std::string(torch_name(*wanted)) +
                       " when it is loaded; save it again from the CPU");
  }
  return tensor;
}

// The argument of an OrderedDict: a dict, or a list of pairs (so Python 2 wrote them), or an
// OrderedDict that had its items set.
Status add_initial_items(const Pickle& pickle, NodeId id, Items& pairs) {
  const bool is_dict = pickle.kind(id) == NodeKind::kDict;
  const bool is_plain =
      call_of(pickle, id) == Call::kOrderedDict && tuple_of(pickle, pickle.arguments(id)).empty();
  if (is_dict || is_plain) {
    pairs = pickle.items(id);
    return {};
  }
  const std::vector<NodeId> list = pickle.elements(id);
  const Arguments tuple = tuple_of(pickle, id);
  if (pickle.kind(id) != NodeKind::kList && pickle.kind(id) != NodeKind::kTuple) {
    return unsupported("an OrderedDict is made neither from pairs nor from a dict");
  }
  for (const NodeId pair : list.empty() ? tuple : Arguments(list)) {
    const std::vector<NodeId> in_list = pickle.elements(pair, 3);
    const Arguments parts = in_list.empty() ? tuple_of(pickle, pair) : Arguments(in_list);
    const NodeKind kind = pickle.kind(pair);
    if (parts.size() != 2 || (kind != NodeKind::kList && kind != NodeKind::kTuple)) {
      return unsupported("an OrderedDict is made from a list with an entry that is no pair");
    }
    pairs.emplace_back(parts[0], parts[1]);
  }
  return {};
}

}  // namespace

bool is_tensor(const Pickle& pickle, NodeId id) {
  switch (call_of(pickle, id)) {
    case Call::kNone:
    case Call::kOrderedDict:
    case Call::kSize:
      return false;
    default:
      return true;
  }
}

Result<TensorDeclaration> declared_tensor(const Pickle& pickle, NodeId id) {
  constexpr int kMaxWrappers = 16;  // Parameter of a subclass of ...
  auto status = check_additions(pickle, id);
  NodeId callable = pickle.callable(id);
  NodeId arguments_id = pickle.arguments(id);
  std::optional<DType> converted;
  for (int depth = 0; status && depth < kMaxWrappers; ++depth) {
    const Symbol* symbol = find_symbol(pickle, callable);
    const Arguments arguments = tuple_of(pickle, arguments_id);
    if (symbol == nullptr) {
      return unsupported("it is made by " + quote(type_name(pickle, callable)));
    }
    switch (symbol->call) {
      case Call::kTensor:
      case Call::kTensorV3:
        return of_type(read_rebuild(pickle, symbol->call, arguments), converted);
      case Call::kUnsupported:
        return unsupported("it is " + std::string(symbol->refusal) + "; such tensors are not read");
      case Call::kConverted:
      case Call::kWrapped:
        if (arguments.empty() || pickle.kind(arguments[0]) != NodeKind::kObject) {
          return corrupt("a parameter without a tensor");
        }
        callable = pickle.callable(arguments[0]);
        arguments_id = pickle.arguments(arguments[0]);
        status = symbol->call == Call::kConverted ? convert(pickle, arguments, converted) : status;
        status = status ? check_additions(pickle, arguments[0]) : status;
        break;
      case Call::kFromType:
        if (arguments.size() < 4) {
          return corrupt("its rebuild call has too few arguments");
        }
        callable = arguments[0];
        arguments_id = arguments[2];
        break;
      default:
        return corrupt("a parameter that holds " + quote(type_name(pickle, callable)));
    }
    constexpr std::size_t kState = 3;  // of parameters with one, and of subclasses
    if (status && symbol->call != Call::kConverted && arguments.size() > kState) {
      status = check_state(pickle, arguments[kState]);
    }
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return corrupt("too many wrappers around a tensor");
}

bool is_mapping(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
      return true;
    case NodeKind::kObject:
      return !is_tensor(pickle, id) &&
             (call_of(pickle, id) == Call::kOrderedDict || pickle.has_items(id));
    default:
      return false;
  }
}

Result<Items> mapping_items(const Pickle& pickle, NodeId id) {
  Items pairs;
  if (call_of(pickle, id) == Call::kOrderedDict) {
    const Arguments arguments = tuple_of(pickle, pickle.arguments(id));
    if (arguments.size() > 1) {
      return unsupported("an OrderedDict is made from more than one value");
    }
    if (!arguments.empty()) {
      auto status = add_initial_items(pickle, arguments[0], pairs);
      if (!status) {
        return fail(std::move(status).error());
      }
    }
  }
  const Items items = pickle.items(id);
  pairs.insert(pairs.end(), items.begin(), items.end());
  return pairs;
}

bool is_opaque(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kGlobal:
    case NodeKind::kPersistent:
      return true;
    case NodeKind::kObject: {
      const Call call = call_of(pickle, id);
      return call == Call::kNone;
    }
    default:
      return false;
  }
}

std::string type_name(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) == NodeKind::kPersistent) {
    return "persistent id";
  }
  constexpr int kMaxCalls = 16;
  std::string calls;
  for (int i = 0; i < kMaxCalls && pickle.kind(id) == NodeKind::kObject; ++i) {
    id = pickle.callable(id);
    calls += i == 0 ? "" : "()";  // the result of a call was called
  }
  if (pickle.kind(id) != NodeKind::kGlobal) {
    return "a value that is no type";
  }
  constexpr std::size_t kMaxPart = 256;  // one long name may be reported many times
  return std::string(pickle.module(id).substr(0, kMaxPart)) + "." +
         std::string(pickle.name(id).substr(0, kMaxPart)) + calls;
}

}  // namespace onnx_external
