// Bytes that are in no file: blocks of memory that the caller owns, and bytes that a function
// produces on demand ("made"). They get offsets, as if they were in one file.
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

// A block of memory. If `owner` is null, the caller must keep it readable.
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

// Gives each byte an offset, as if all were in one file. Blocks of memory that overlap become one
// run, so equal addresses have equal offsets. Made bytes exist only while somebody owns the result
// of hold(). Nothing else ever changes; all const members may be called from any thread.
class MemoryRuns {
 public:
  // Keeps a made run in memory. Null for a run that is in memory anyway.
  using Held = std::shared_ptr<const void>;

  // At most `most_made` made runs are in memory at a time. kInvalidArgument for a block that ends
  // past the address space, for more than 2^63-1 bytes in all, and for most_made < 1.
  [[nodiscard]] static Result<std::shared_ptr<const MemoryRuns>> of(std::vector<MemoryBlock> blocks,
                                                                    std::vector<MadeBlock> made,
                                                                    int most_made);

  MemoryRuns(const MemoryRuns&) = delete;
  MemoryRuns& operator=(const MemoryRuns&) = delete;
  ~MemoryRuns() = default;

  [[nodiscard]] std::uint64_t size() const { return size_; }

  // The offset of a byte of a block; 0 for one that is in no block.
  [[nodiscard]] std::uint64_t offset_of(const std::byte* data) const;
  // The offset of the first byte of made[index].
  [[nodiscard]] std::uint64_t offset_of_made(std::size_t index) const;

  // Returns the bytes where they are in memory. kCorrupt unless they are inside one run;
  // kUnsupported for made bytes that nobody holds. The span is valid as long as this object and,
  // for made bytes, the `Held` value exist.
  [[nodiscard]] Result<std::span<const std::byte>> bytes(std::uint64_t offset,
                                                         std::uint64_t length) const;

  // Makes the run at `offset`, unless it is in memory already. Waits until fewer than `most_made`
  // other runs are held. This cannot deadlock, because a thread that waits holds none. Requires:
  // the thread holds no other run; this object outlives the result. Returns errors of `make`; an
  // exception becomes an error.
  [[nodiscard]] Result<Held> hold(std::uint64_t offset) const;

 private:
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    const std::byte* data = nullptr;  // null: made
    std::size_t made = 0;             // then: index into made_
  };
  struct Made {
    MadeBlock block;
    std::mutex mutex;  // also while it is being made
    std::weak_ptr<const std::byte> bytes;
  };
  class Place;

  MemoryRuns() = default;
  void add_blocks();
  [[nodiscard]] const Run* run_at(std::uint64_t offset) const;
  [[nodiscard]] Result<std::shared_ptr<const std::byte>> make(const MadeBlock& block) const;

  std::vector<MemoryBlock> blocks_;  // owners, by rising address
  std::vector<Run> runs_;            // by rising offset: memory by rising address, then made
  std::vector<std::unique_ptr<Made>> made_;
  std::size_t in_memory_ = 0;  // of the runs
  std::uint64_t size_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable int places_ = 0;  // for runs that are made
};

}  // namespace onnx_external
