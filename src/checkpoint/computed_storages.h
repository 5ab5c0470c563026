// Storages whose bytes are put together in memory, and how much memory that may take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/contents.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// What may be kept in memory on behalf of a file: it grows with the file and with --max-expand, not
// with what the file declares.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes) : left_(bytes) {}

  // Takes count * each bytes. kUnsupported when they are not left.
  [[nodiscard]] Status take(std::uint64_t count, std::uint64_t each);

 private:
  std::uint64_t left_;
};

// As much as tensors may expand to (open_checkpoint.cc has the same rule for those).
[[nodiscard]] MemoryBudget memory_budget(const CheckpointPart& part, std::uint64_t max_expand);

// Adds a storage of `bytes` bytes that `source` reads, and gives its index. It is put together from
// the storages `from`.
[[nodiscard]] std::uint32_t add_computed(CheckpointPart& part, std::uint64_t bytes,
                                         ReadSource source, std::vector<std::uint32_t> from = {});

// Reads what `memory` has from `offset` on, and keeps it alive.
[[nodiscard]] ReadSource memory_source(std::shared_ptr<const std::string> memory,
                                       std::uint64_t offset = 0);

}  // namespace onnx_external
