// Adds storages whose bytes are computed instead of stored in a file, and limits the memory for
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Limits the bytes of one FileContents that are kept in memory or summed. The budget depends on the
// size of the files and on OpenOptions::max_expand, not on sizes that the files declare.
// (open_checkpoint.cc limits the sizes of tensors in the same way.)
class MemoryBudget {
 public:
  // `part` counts the bytes that are used, and must outlive this object.
  MemoryBudget(FileContents& part, std::uint64_t max_expand)
      : part_(part), max_expand_(max_expand) {}

  // Reserves count * each bytes. Fails with kUnsupported if fewer bytes are left.
  [[nodiscard]] Status take(std::uint64_t count, std::uint64_t each);

  // Fails with kUnsupported if `part` uses more than the budget, which is possible after several
  // parts were combined.
  [[nodiscard]] Status check() { return take(0, 0); }

 private:
  [[nodiscard]] std::uint64_t most() const;

  FileContents& part_;
  std::uint64_t max_expand_;
};

// Adds a storage of `bytes` bytes that are read through `source`, and returns its index. `from` are
// the storages from which the bytes are computed.
[[nodiscard]] std::uint32_t add_computed(FileContents& part, std::uint64_t bytes, ReadSource source,
                                         std::vector<std::uint32_t> from = {});

// Returns the storages from which a storage is computed, directly or through others, down to
// quantized weights and to storages that are not computed from others; each of them once. For such
// a storage, returns the storage itself.
[[nodiscard]] std::vector<std::uint32_t> sources_of(const FileContents& all, std::uint32_t storage);

// Returns a source that reads `memory` from `offset` on and keeps it alive.
[[nodiscard]] ReadSource memory_source(std::shared_ptr<const std::string> memory,
                                       std::uint64_t offset = 0);

}  // namespace onnx_external
