// In what two checkpoints or models differ: names, types, shapes and bytes. For inspect-external.
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

// Two tensors of one name.
struct TensorPair {
  InspectedTensor a;
  InspectedTensor b;
};

struct Difference {
  std::vector<InspectedTensor> only_a;  // in the order of their files
  std::vector<InspectedTensor> only_b;
  std::vector<TensorPair> forms;       // of another type or shape
  std::vector<TensorPair> bytes;       // of one type and shape, with other bytes
  std::vector<TensorPair> unreadable;  // strings, and entries that break the rules
  std::size_t equal = 0;               // pairs in which nothing differs
  std::uint64_t bytes_read = 0;

  [[nodiscard]] bool none() const {
    return only_a.empty() && only_b.empty() && forms.empty() && bytes.empty() && unreadable.empty();
  }
};

enum class CompareBytes : std::uint8_t { kNo, kYes };

struct DifferenceOptions {
  InspectOptions inspect;  // its digests are not used
  NameFilter filter;       // which tensors are compared
  CompareBytes bytes = CompareBytes::kYes;
};

// Compares by equal names what a save would take of a checkpoint, all that inspect() lists where it
// would take none, or a model's initializers. Wrappers ("_orig_mod", "module." before all) are left
// out of names. Only pairs of one type and shape are read, for their SHA-256: in steps, whatever
// their size. Errors as inspect(); kIo when a file changes meanwhile.
[[nodiscard]] Result<Difference> find_difference(std::span<const std::filesystem::path> a,
                                                 std::span<const std::filesystem::path> b,
                                                 const DifferenceOptions& options);

}  // namespace onnx_external
