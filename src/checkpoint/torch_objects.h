// What the symbols in a torch pickle mean: which objects are tensors, which are mappings.
//
// Sources: torch/_utils.py (rebuild functions and their arguments), torch/_tensor.py,
// torch/serialization.py (persistent ids); docs/formats.md lists them. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// A tensor as its rebuild call declares it; nothing is checked against a storage yet.
struct TensorDeclaration {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::int64_t> strides;  // elements
  std::int64_t offset = 0;            // elements
  std::string storage_key;            // its record is data/<key>
  std::uint64_t storage_bytes = 0;    // that the persistent id declares
};

// Reads ('storage', class, key, location, numel): sets dtype, storage_key and storage_bytes.
// kUnsupported: an unknown class. kCorrupt.
[[nodiscard]] Result<TensorDeclaration> declared_storage(const Pickle& pickle, NodeId id);

// True for an object made by one of torch's rebuild functions, readable or not.
[[nodiscard]] bool is_tensor(const Pickle& pickle, NodeId id);

// Unwraps parameters and subclasses and reads the rebuild call.
// kUnsupported with the reason: sparse, quantized, nested, meta, wrapper subclasses, lazily
// conjugated or negated tensors, unknown element types. kCorrupt: arguments of the wrong kind.
// Requires: is_tensor(pickle, id).
[[nodiscard]] Result<TensorDeclaration> declared_tensor(const Pickle& pickle, NodeId id);

// True for a dict, an OrderedDict, and any other object that had items set on it.
[[nodiscard]] bool is_mapping(const Pickle& pickle, NodeId id);

// Its (key, value) pairs in order, whichever way they were pickled; twin keys are kept.
// kUnsupported when an OrderedDict is made from anything but pairs or another mapping.
// Requires: is_mapping(pickle, id).
using Items = std::vector<std::pair<NodeId, NodeId>>;
[[nodiscard]] Result<Items> mapping_items(const Pickle& pickle, NodeId id);

// True for what is neither a plain value nor a torch.Size.
[[nodiscard]] bool is_opaque(const Pickle& pickle, NodeId id);

// "module.name" of a symbol, or of what an object would have called; long names are cut.
[[nodiscard]] std::string type_name(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
