#include "checkpoint/torch/torch_symbols.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

constexpr std::string_view kNestedTensor =
    "a nested tensor; save the tensors of its unbind() instead";

// The two that every tensor of a state dict has come first.
constexpr std::array kSymbols = {
    Symbol{"torch._utils", "_rebuild_tensor_v2", Call::kTensor, {6, 7}},
    Symbol{"collections", "OrderedDict", Call::kOrderedDict},
    Symbol{"torch._utils", "_rebuild_tensor", Call::kTensor, {4, 4}},
    Symbol{"torch._utils", "_rebuild_tensor_v3", Call::kTensorV3, {7, 8}},
    Symbol{"torch._utils", "_rebuild_qtensor", Call::kQuantized, {7, 7}},
    Symbol{"torch._utils", "_rebuild_sparse_tensor", Call::kSparse, {2, 2}},
    Symbol{"torch._utils", "_rebuild_sparse_csr_tensor", Call::kSparse, {2, 2}},
    Symbol{"torch._utils", "_rebuild_parameter", Call::kWrapped, {3, 3}},
    Symbol{"torch._utils", "_rebuild_parameter_with_state", Call::kWrapped, {4, 4}},
    Symbol{"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", Call::kConverted, {4, 4}},
    Symbol{"torch._utils", "_rebuild_device_tensor_from_numpy", Call::kConverted, {4, 4}},
    Symbol{"torch._utils", "_rebuild_xla_tensor", Call::kConverted, {4, 4}},
    Symbol{"torch.nn.parameter", "Parameter", Call::kWrapped, {1, 2}},
    Symbol{"torch.nn.parameter", "Buffer", Call::kWrapped, {1, 1}},
    Symbol{"torch._tensor", "_rebuild_from_type", Call::kFromType, {4, 4}},
    Symbol{"torch._tensor", "_rebuild_from_type_v2", Call::kFromType, {4, 4}},
    Symbol{"torch.tensor", "_rebuild_from_type", Call::kFromType, {4, 4}},
    Symbol{"torch.tensor", "_rebuild_from_type_v2", Call::kFromType, {4, 4}},
    Symbol{"numpy.core.multiarray", "_reconstruct", Call::kArray},
    Symbol{"numpy._core.multiarray", "_reconstruct", Call::kArray},
    Symbol{"numpy.core.multiarray", "scalar", Call::kArrayScalar},
    Symbol{"numpy._core.multiarray", "scalar", Call::kArrayScalar},
    Symbol{"numpy.core.numeric", "_frombuffer", Call::kBufferArray},
    Symbol{"numpy._core.numeric", "_frombuffer", Call::kBufferArray},
    Symbol{"numpy", "dtype", Call::kArrayType},
    Symbol{"_codecs", "encode", Call::kEncode},
    Symbol{"__builtin__", "bytes", Call::kBytes},
    Symbol{"builtins", "bytes", Call::kBytes},
    Symbol{"torch.storage", "_load_from_bytes", Call::kLoadFromBytes},
    Symbol{"torch", "Size", Call::kSize},
    Symbol{"torch.serialization", "_get_layout", Call::kLayout},
    Symbol{"torch.jit._pickle", "restore_type_tag", Call::kTypeTag},
    Symbol{"torch._utils", "_rebuild_nested_tensor", Call::kUnsupported, {}, kNestedTensor},
    Symbol{"torch.nested._internal.nested_tensor",
           "_rebuild_njt",
           Call::kUnsupported,
           {},
           kNestedTensor},
    Symbol{"torch._utils",
           "_rebuild_wrapper_subclass",
           Call::kWrapper,
           {},
           "a tensor subclass that wraps other tensors (such as DTensor), saved without these "
           "tensors; save tensor.full_tensor() or another plain tensor instead"},
    Symbol{"torch._utils",
           "_rebuild_meta_tensor_no_storage",
           Call::kUnsupported,
           {},
           "a meta tensor, which has no data; load the weights into the model before it is saved"},
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
    StorageClass{"QInt8Storage", DType::kInt8, true},
    StorageClass{"QUInt8Storage", DType::kUInt8, true},
    StorageClass{"QInt32Storage", DType::kInt32, true},
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

// Labels of globals: 0 is not looked up yet, kUnknown nobody's, all others an index + 1.
constexpr std::uint32_t kUnknown = static_cast<std::uint32_t>(kSymbols.size()) + 1;

const Symbol* look_up(const Pickle& pickle, NodeId id) {
  const std::string_view name = pickle.name(id);
  const std::string_view module = pickle.module(id);
  const auto found = std::find_if(kSymbols.begin(), kSymbols.end(), [&](const Symbol& symbol) {
    return symbol.name == name && symbol.module == module;
  });
  return found == kSymbols.end() ? nullptr : &*found;
}

}  // namespace

void label_symbols(Pickle& pickle) {
  for (NodeId id = 0; id < pickle.node_count(); ++id) {
    if (pickle.kind(id) == NodeKind::kGlobal) {
      const Symbol* symbol = look_up(pickle, id);
      pickle.set_label(id, symbol == nullptr
                               ? kUnknown
                               : static_cast<std::uint32_t>(symbol - kSymbols.data()) + 1);
    }
  }
}

const Symbol* find_symbol(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kGlobal) {
    return nullptr;
  }
  const std::uint32_t label = pickle.label(id);
  if (label == 0) {
    return look_up(pickle, id);
  }
  return label == kUnknown ? nullptr : &kSymbols[label - 1];
}

Call call_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kObject) {
    return Call::kNone;
  }
  const Symbol* symbol = find_symbol(pickle, pickle.callable(id));
  return symbol == nullptr ? Call::kNone : symbol->call;
}

Result<StorageClass> storage_class_of(const Pickle& pickle, NodeId id) {
  if (pickle.kind(id) != NodeKind::kGlobal) {
    return fail(ErrorCode::kCorrupt, "its storage has no class");
  }
  const std::string_view module = pickle.module(id);
  const std::string_view name = pickle.name(id);
  const bool torch_module =
      module == "torch" || module == "torch.cuda" || module == "torch.storage";
  if (torch_module && (name == "QUInt4x2Storage" || name == "QUInt2x4Storage")) {
    return fail(ErrorCode::kUnsupported, "it packs several quantized values into a byte (" +
                                             quote(name) + "); save tensor.dequantize() instead");
  }
  const auto found = std::find_if(kStorageClasses.begin(), kStorageClasses.end(),
                                  [&](const StorageClass& known) { return known.name == name; });
  if (!torch_module || found == kStorageClasses.end()) {
    return fail(ErrorCode::kUnsupported,
                "storage class " + quote(type_name(pickle, id)) + " is not supported");
  }
  return *found;
}

Result<DType> read_dtype(const Pickle& pickle, NodeId id) {
  const bool named = pickle.kind(id) == NodeKind::kGlobal && pickle.module(id) == "torch";
  const auto known = named ? dtype_from_torch_name(pickle.name(id)) : std::nullopt;
  if (!known) {
    return fail(ErrorCode::kUnsupported,
                "element type " + quote(type_name(pickle, id)) +
                    " is not supported; save tensor.view(torch.uint8) instead");
  }
  return *known;
}

Result<std::vector<std::int64_t>> read_integers(const Pickle& pickle, NodeId id,
                                                std::string_view what) {
  if (call_of(pickle, id) == Call::kSize) {
    const Arguments arguments = pickle.tuple(pickle.arguments(id));
    if (arguments.size() == 1) {
      id = arguments[0];
    }
  }
  std::vector<NodeId> nodes = pickle.elements(id, kMaxRank + 1);
  const Arguments tuple = pickle.tuple(id);
  nodes.insert(nodes.end(), tuple.begin(), tuple.end());
  if (pickle.kind(id) != NodeKind::kTuple && pickle.kind(id) != NodeKind::kList) {
    return fail(ErrorCode::kCorrupt, "its " + std::string(what) + " is not a tuple of ints");
  }
  if (nodes.size() > kMaxRank) {
    return fail(ErrorCode::kCorrupt, "its " + std::string(what) + " has more than " +
                                         std::to_string(kMaxRank) + " dimensions");
  }
  std::vector<std::int64_t> values;
  for (const NodeId node : nodes) {
    const auto value = pickle.integer(node);
    if (!value) {
      return fail(ErrorCode::kCorrupt, "its " + std::string(what) + " is not a tuple of ints");
    }
    values.push_back(*value);
  }
  return values;
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
    return "a value that is not a type";
  }
  constexpr std::size_t kMaxPart = 256;  // one long name may be reported many times
  return std::string(pickle.module(id).substr(0, kMaxPart)) + "." +
         std::string(pickle.name(id).substr(0, kMaxPart)) + calls;
}

}  // namespace onnx_external
