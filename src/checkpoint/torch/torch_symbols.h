// The names in a torch pickle that this reader knows, and the small values that go with them.
//
// Sources: torch/_utils.py (rebuild functions), torch/_tensor.py, torch/storage.py; numpy's
// ndarray.__reduce__ and scalar types. Pure; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Kinds of calls that this reader treats differently.
enum class Call : std::uint8_t {
  kNone,
  kTensor,         // (storage, offset, size, stride, ...)
  kTensorV3,       // likewise, with a dtype
  kQuantized,      // (storage, offset, size, stride, quantizer, ...)
  kSparse,         // (layout, data)
  kWrapped,        // (tensor, flag, hooks, state): at least the first
  kConverted,      // (tensor, dtype, ...)
  kFromType,       // (function, type, arguments, state)
  kWrapper,        // (class, dtype, size, ...), in a kFromType
  kArray,          // numpy.ndarray, filled in by its state
  kBufferArray,    // (bytes, dtype, shape, order)
  kArrayScalar,    // (dtype, bytes)
  kArrayType,      // ("f4", align, copy), its byte order in the state
  kEncode,         // (text, encoding): bytes in protocol 2
  kBytes,          // (): empty bytes in protocol 2
  kLoadFromBytes,  // (a whole file of one storage)
  kLayout,         // ("torch.sparse_coo")
  kOrderedDict,    // ([pairs])
  kSize,           // ((dimensions))
  kTypeTag,        // (value, type's name), of TorchScript
  kUnsupported,
};

// The number of arguments that torch's function takes, where declared_tensor() relies on it.
struct Arity {
  std::uint8_t least = 0;
  std::uint8_t most = std::numeric_limits<std::uint8_t>::max();
};

struct Symbol {
  std::string_view module;
  std::string_view name;
  Call call;
  Arity arity = {};
  std::string_view refusal = {};  // for kUnsupported
};

// Labels the globals, so that calls need not be looked up by name for each tensor. This only saves
// time.
void label_symbols(Pickle& pickle);

// nullptr for anything but a known global.
[[nodiscard]] const Symbol* find_symbol(const Pickle& pickle, NodeId id);
// kNone for anything but an object made by a known call.
[[nodiscard]] Call call_of(const Pickle& pickle, NodeId id);

using Arguments = std::span<const NodeId>;

// The element type of one of torch's storage classes. kCorrupt, kUnsupported.
struct StorageClass {
  std::string_view name;
  DType dtype;
  bool quantized = false;
};
[[nodiscard]] Result<StorageClass> storage_class_of(const Pickle& pickle, NodeId id);

// The type that a symbol such as torch.float32 names. kUnsupported.
[[nodiscard]] Result<DType> read_dtype(const Pickle& pickle, NodeId id);

// A tuple of ints, a list of them, or torch.Size of one; at most kMaxRank. `what` is for messages.
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const Pickle& pickle, NodeId id,
                                                              std::string_view what);

// "module.name" of a symbol, or of what an object would have called; long names are cut.
[[nodiscard]] std::string type_name(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
