// Compares two checkpoints or models by names, types, shapes and bytes, for inspect-external.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "inspect/inspect.h"
#include "inspect/listing.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A pair of tensors with the same name, one of each side.
struct TensorPair {
  InspectedTensor a;
  InspectedTensor b;
};

struct Difference {
  std::vector<InspectedTensor> only_a;  // in the order of their files
  std::vector<InspectedTensor> only_b;
  std::vector<TensorPair> forms;       // pairs with different element types or shapes
  std::vector<TensorPair> bytes;       // pairs with the same type and shape, but different bytes
  std::vector<TensorPair> unreadable;  // unreadable pairs: strings, and entries that break the
                                       // rules
  std::size_t equal = 0;               // number of pairs without a difference
  std::uint64_t bytes_read = 0;

  [[nodiscard]] bool none() const {
    return only_a.empty() && only_b.empty() && forms.empty() && bytes.empty() && unreadable.empty();
  }
};

enum class CompareBytes : std::uint8_t { kNo, kYes };

struct DifferenceOptions {
  InspectOptions inspect;  // the digests option is ignored
  NameFilter filter;       // selects the tensors that are compared
  CompareBytes bytes = CompareBytes::kYes;
};

// Compares tensors with equal names. The tensors of a model are its initializers. The tensors of a
// checkpoint are those that a save would use or, if a save would reject the checkpoint, all tensors
// that inspect() lists. Wrappers ("_orig_mod", a "module." in front of all names) are removed from
// names. Only pairs with the same type and shape are read; they are compared by SHA-256. Errors as
// for inspect(); also kIo if a file changes during the call.
[[nodiscard]] Result<Difference> find_difference(std::span<const std::filesystem::path> a,
                                                 std::span<const std::filesystem::path> b,
                                                 const DifferenceOptions& options);

}  // namespace onnx_external
