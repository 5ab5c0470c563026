// Assigns offsets to bytes that are not in a file, as if they were all in one file. The bytes are
// either in blocks of memory that the caller owns, or produced on demand by a function of the
// caller ("made" bytes).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// A block of memory. If `owner` is null, the caller must keep the block readable.
struct MemoryBlock {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
  std::shared_ptr<const void> owner;
};

// Bytes that `make` produces. It may be called from several threads at once.
struct MadeBlock {
  std::string name;  // for messages
  std::uint64_t size = 0;
  std::function<Status(std::span<std::byte> out)> make;
};

// A sequence of runs of bytes in which each byte has an offset. Blocks of memory that overlap
// become one run, so equal addresses have equal offsets. Made bytes are in memory only while a
// result of hold() exists. Const members may be called from any thread.
class MemoryRuns {
 public:
  // Keeps a run of made bytes in memory while it exists. Null for a run that is always in memory.
  using Held = std::shared_ptr<const void>;

  // Creates the runs. At most `most_made` runs of made bytes are in memory at a time. Fails with
  // kInvalidArgument for a block that ends past the address space, for more than 2^63-1 bytes in
  // total, and for most_made < 1.
  [[nodiscard]] static Result<std::shared_ptr<const MemoryRuns>> of(std::vector<MemoryBlock> blocks,
                                                                    std::vector<MadeBlock> made,
                                                                    int most_made);

  MemoryRuns(const MemoryRuns&) = delete;
  MemoryRuns& operator=(const MemoryRuns&) = delete;
  ~MemoryRuns() = default;

  [[nodiscard]] std::uint64_t size() const { return size_; }

  // Returns the offset of a byte in a block of memory; 0 for a byte that is in no block.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* data) const;
  // Returns the offset of the first byte of made[index].
  [[nodiscard]] std::uint64_t offset_of_made(std::size_t index) const;

  // Returns the bytes without copying them. Fails with kCorrupt unless the bytes are inside one
  // run, and with kUnsupported for made bytes that are not held. The span is valid as long as this
  // object and, for made bytes, the `Held` value exist.
  [[nodiscard]] Result<std::span<const std::byte>> bytes(std::uint64_t offset,
                                                         std::uint64_t length) const;

  // Produces the bytes of the run at `offset`, unless they are already in memory. Before that,
  // waits until fewer than `most_made` other runs are held. This cannot deadlock, because a waiting
  // thread does not hold a run. Requires: the calling thread holds no other run; this object
  // outlives the result. Returns errors of `make`; an exception becomes an error.
  [[nodiscard]] Result<Held> hold(std::uint64_t offset) const;

 private:
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    const std::byte* data = nullptr;  // null for made bytes
    std::size_t made = 0;             // for made bytes: index into made_
  };
  struct Made {
    MadeBlock block;
    std::mutex mutex;  // also locked while `make` runs
    std::weak_ptr<const std::byte> bytes;
  };
  class Place;

  MemoryRuns() = default;
  void add_blocks();
  [[nodiscard]] const Run* run_at(std::uint64_t offset) const;
  [[nodiscard]] Result<std::shared_ptr<const std::byte>> make(const MadeBlock& block) const;

  std::vector<MemoryBlock> blocks_;  // owners, by ascending address
  std::vector<Run> runs_;            // by ascending offset: blocks by address, then made bytes
  std::vector<std::unique_ptr<Made>> made_;
  std::size_t in_memory_ = 0;  // number of runs in memory blocks
  std::uint64_t size_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable int places_ = 0;  // number of further runs of made bytes that may be held
};

}  // namespace onnx_external
