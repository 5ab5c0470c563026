// Adds storages whose bytes are computed and not stored in a file, and limits the memory that they
// take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The budget for bytes of one FileContents that are kept in memory or added up. It grows with the
// size of its files and with --max-expand, not with the sizes that the files declare.
// (open_checkpoint.cc limits the tensors in the same way.)
class MemoryBudget {
 public:
  // `part` counts the bytes taken; it must outlive this object.
  MemoryBudget(FileContents& part, std::uint64_t max_expand)
      : part_(part), max_expand_(max_expand) {}

  // Takes count * each bytes. kUnsupported if fewer are left.
  [[nodiscard]] Status take(std::uint64_t count, std::uint64_t each);

  // kUnsupported if parts that were combined have together taken more than the budget.
  [[nodiscard]] Status check() { return take(0, 0); }

 private:
  [[nodiscard]] std::uint64_t most() const;

  FileContents& part_;
  std::uint64_t max_expand_;
};

// Adds a storage of `bytes` bytes that are read through `source`, and returns its index. `from` are
// the storages from which it is computed.
[[nodiscard]] std::uint32_t add_computed(FileContents& part, std::uint64_t bytes, ReadSource source,
                                         std::vector<std::uint32_t> from = {});

// Returns a source that reads `memory` from `offset` on and keeps it alive.
[[nodiscard]] ReadSource memory_source(std::shared_ptr<const std::string> memory,
                                       std::uint64_t offset = 0);

}  // namespace onnx_external
