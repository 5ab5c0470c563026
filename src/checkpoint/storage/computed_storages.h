// Storages whose bytes are computed, and the limit on memory for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The budget for bytes that are kept in memory or added up for the files of a part. It grows with
// the size of these files and with --max-expand, not with sizes that they declare.
// (open_checkpoint.cc limits the tensors in the same way.)
class MemoryBudget {
 public:
  // `part` counts the bytes taken; it must outlive this object.
  MemoryBudget(FileContents& part, std::uint64_t max_expand)
      : part_(part), max_expand_(max_expand) {}

  // Takes count * each bytes. kUnsupported if fewer are left.
  [[nodiscard]] Status take(std::uint64_t count, std::uint64_t each);

  // kUnsupported if combined parts have taken more than the budget of all.
  [[nodiscard]] Status check() { return take(0, 0); }

 private:
  [[nodiscard]] std::uint64_t most() const;

  FileContents& part_;
  std::uint64_t max_expand_;
};

// Adds a storage of `bytes` bytes that `source` reads, and returns its index. It is computed from
// the storages `from`.
[[nodiscard]] std::uint32_t add_computed(FileContents& part, std::uint64_t bytes, ReadSource source,
                                         std::vector<std::uint32_t> from = {});

// A source that reads `memory` from `offset` on and keeps it alive.
[[nodiscard]] ReadSource memory_source(std::shared_ptr<const std::string> memory,
                                       std::uint64_t offset = 0);

}  // namespace onnx_external
