// Storages whose bytes are put together in memory, and how much memory that may take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// What may be kept in memory, or added up, on behalf of the files of a part: it grows with them and
// with --max-expand, not with what they declare (tensors may expand to as much:
// open_checkpoint.cc).
class MemoryBudget {
 public:
  // `part`, which counts what was taken, must outlive this.
  MemoryBudget(FileContents& part, std::uint64_t max_expand)
      : part_(part), max_expand_(max_expand) {}

  // Takes count * each bytes. kUnsupported when they are not left.
  [[nodiscard]] Status take(std::uint64_t count, std::uint64_t each);

  // kUnsupported when parts that were put together took more than all may.
  [[nodiscard]] Status check() { return take(0, 0); }

 private:
  [[nodiscard]] std::uint64_t most() const;

  FileContents& part_;
  std::uint64_t max_expand_;
};

// Adds a storage of `bytes` bytes that `source` reads, and gives its index. It is put together from
// the storages `from`.
[[nodiscard]] std::uint32_t add_computed(FileContents& part, std::uint64_t bytes, ReadSource source,
                                         std::vector<std::uint32_t> from = {});

// Reads what `memory` has from `offset` on, and keeps it alive.
[[nodiscard]] ReadSource memory_source(std::shared_ptr<const std::string> memory,
                                       std::uint64_t offset = 0);

}  // namespace onnx_external
