// The names in a torch pickle that mean something here, and small values around them.
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

// What a call makes, by what this reader does with it.
enum class Call : std::uint8_t {
  kNone,
  kTensor,         // (storage, offset, size, stride, ...)
  kTensorV3,       // the same, with a dtype
  kQuantized,      // (storage, offset, size, stride, quantizer, ...)
  kSparse,         // (layout, data)
  kWrapped,        // (tensor, flag, hooks, state): at least the first
  kConverted,      // (tensor, dtype, ...)
  kFromType,       // (function, type, arguments, state)
  kArray,          // numpy.ndarray, filled in by its state
  kBufferArray,    // (bytes, dtype, shape, order)
  kArrayScalar,    // (dtype, bytes)
  kArrayType,      // ("f4", align, copy), its byte order in the state
  kEncode,         // (text, encoding): how bytes are written in protocol 2
  kBytes,          // (): so are those without any
  kLoadFromBytes,  // (a whole file of one storage)
  kLayout,         // ("torch.sparse_coo")
  kOrderedDict,    // ([pairs])
  kSize,           // ((dimensions))
  kUnsupported,
};

// How many arguments torch's function takes, where declared_tensor() relies on it.
struct Arity {
  std::uint8_t least = 0;
  std::uint8_t most = std::numeric_limits<std::uint8_t>::max();
};

struct Symbol {
  std::string_view module;
  std::string_view name;
  Call call;
  Arity arity = {};
  std::string_view refusal = {};  // of kUnsupported
};

// Labels the globals, so that the calls of each tensor need not be looked up by name. Without it
// everything works, but slower.
void label_symbols(Pickle& pickle);

// Nothing for what is no known global.
[[nodiscard]] const Symbol* find_symbol(const Pickle& pickle, NodeId id);
// kNone for what is no object made by a known call.
[[nodiscard]] Call call_of(const Pickle& pickle, NodeId id);

using Arguments = std::span<const NodeId>;

// The element type of torch's storage class. kCorrupt, kUnsupported.
struct StorageClass {
  std::string_view name;
  DType dtype;
  bool quantized = false;
};
[[nodiscard]] Result<StorageClass> storage_class_of(const Pickle& pickle, NodeId id);

// torch.float32 and its like. kUnsupported.
[[nodiscard]] Result<DType> read_dtype(const Pickle& pickle, NodeId id);

// A tuple of ints, a list of them, or torch.Size of one; at most kMaxRank. `what` is for messages.
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const Pickle& pickle, NodeId id,
                                                              std::string_view what);

// "module.name" of a symbol, or of what an object would have called; long names are cut.
[[nodiscard]] std::string type_name(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
