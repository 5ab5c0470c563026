// Lists the known symbols (modules and names) in torch pickles, and reads the small values that
// contain symbols, such as element types.
//
// Sources: torch/_utils.py (rebuild functions), torch/_tensor.py, torch/storage.py; numpy's
// ndarray.__reduce__ and scalar types. All functions are pure and may be called from any thread.
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

// The known calls, with their arguments.
enum class Call : std::uint8_t {
  kNone,
  kTensor,         // (storage, offset, size, stride, ...)
  kTensorV3,       // like kTensor, with a dtype
  kQuantized,      // (storage, offset, size, stride, quantizer, ...)
  kSparse,         // (layout, data)
  kWrapped,        // (tensor, flag, hooks, state); only the tensor is required
  kConverted,      // (tensor, dtype, ...)
  kFromType,       // (function, type, arguments, state)
  kWrapper,        // (class, dtype, size, ...), inside a kFromType
  kArray,          // numpy.ndarray, whose state has the content
  kBufferArray,    // (bytes, dtype, shape, order)
  kArrayScalar,    // (dtype, bytes)
  kArrayType,      // ("f4", align, copy); the state has the byte order
  kEncode,         // (text, encoding): bytes in protocol 2
  kBytes,          // (): empty bytes in protocol 2
  kLoadFromBytes,  // (the bytes of a whole file with one storage)
  kLayout,         // ("torch.sparse_coo")
  kOrderedDict,    // ([pairs])
  kSize,           // ((dimensions))
  kTypeTag,        // (value, name of the type), in TorchScript
  kUnsupported,
};

// The number of arguments of torch's function. It is set only if declared_tensor() depends on it.
struct Arity {
  std::uint8_t least = 0;
  std::uint8_t most = std::numeric_limits<std::uint8_t>::max();
};

struct Symbol {
  std::string_view module;
  std::string_view name;
  Call call;
  Arity arity = {};
  std::string_view refusal = {};  // the reason for kUnsupported
};

// Stores a label with each known symbol, so that calls need not be looked up by name for each
// tensor. This is only an optimization.
void label_symbols(Pickle& pickle);

// Returns the description of a known symbol, or nullptr for any other value.
[[nodiscard]] const Symbol* find_symbol(const Pickle& pickle, NodeId id);
// Returns the known call that creates an object, or kNone for any other value.
[[nodiscard]] Call call_of(const Pickle& pickle, NodeId id);

using Arguments = std::span<const NodeId>;

// One of torch's storage classes and its element type. Errors: kCorrupt, kUnsupported.
struct StorageClass {
  std::string_view name;
  DType dtype;
  bool quantized = false;
};
[[nodiscard]] Result<StorageClass> storage_class_of(const Pickle& pickle, NodeId id);

// Returns the element type that a symbol such as torch.float32 denotes. Errors: kUnsupported.
[[nodiscard]] Result<DType> read_dtype(const Pickle& pickle, NodeId id);

// Reads a tuple or list of ints, or a torch.Size, with at most kMaxRank numbers. `what` describes
// the value in messages.
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const Pickle& pickle, NodeId id,
                                                              std::string_view what);

// Returns "module.name" of a symbol, or of the callable of an object. Long names are shortened.
[[nodiscard]] std::string type_name(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
