#include "base/memory_runs.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked_math.h"
#include "base/io_buffer.h"
#include "base/parallel.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

std::uint64_t address_of(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

Status check_block(const MemoryBlock& block) {
  if (!checked_add(address_of(block.data), block.size)) {
    return fail(ErrorCode::kInvalidArgument,
                std::to_string(block.size) +
                    " bytes at this address reach beyond the end of the address space");
  }
  return {};
}

}  // namespace

// Reserves room for one run of made bytes as long as this object exists.
class MemoryRuns::Place {
 public:
  explicit Place(const MemoryRuns& runs) : runs_(runs) {
    std::unique_lock<std::mutex> lock(runs_.mutex_);
    runs_.freed_.wait(lock, [&] { return runs_.places_ > 0; });
    --runs_.places_;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    {
      const std::lock_guard<std::mutex> lock(runs_.mutex_);
      ++runs_.places_;
    }
    runs_.freed_.notify_one();
  }

  IoBuffer buffer;

 private:
  const MemoryRuns& runs_;
};

Result<std::shared_ptr<const MemoryRuns>> MemoryRuns::of(std::vector<MemoryBlock> blocks,
                                                         std::vector<MadeBlock> made,
                                                         int most_made) {
  if (most_made < 1) {
    return fail(ErrorCode::kInvalidArgument, "at least one tensor must be produced at a time");
  }
  std::erase_if(blocks, [](const MemoryBlock& block) { return block.size == 0; });
  for (const MemoryBlock& block : blocks) {
    TRY(check_block(block));
  }
  const auto runs = std::shared_ptr<MemoryRuns>(new MemoryRuns);
  runs->places_ = most_made;
  runs->blocks_ = std::move(blocks);
  runs->add_blocks();
  for (MadeBlock& block : made) {
    runs->runs_.push_back({runs->size_, block.size, nullptr, runs->made_.size()});
    runs->size_ = checked_add(runs->size_, block.size).value_or(kMostBytes + 1);
    if (runs->size_ > kMostBytes) {
      return fail(ErrorCode::kInvalidArgument, "all tensors together exceed 2^63-1 bytes");
    }
    runs->made_.push_back(std::make_unique<Made>());
    runs->made_.back()->block = std::move(block);
  }
  return runs;
}

void MemoryRuns::add_blocks() {
  std::stable_sort(blocks_.begin(), blocks_.end(), [](const auto& a, const auto& b) {
    return address_of(a.data) < address_of(b.data);
  });
  for (const MemoryBlock& block : blocks_) {
    const std::uint64_t begin = address_of(block.data);
    const bool overlaps =
        !runs_.empty() && begin < address_of(runs_.back().data) + runs_.back().size;
    if (!overlaps) {
      runs_.push_back({size_, 0, block.data, 0});
    }
    Run& run = runs_.back();
    const std::uint64_t end = begin + block.size - address_of(run.data);
    const std::uint64_t grown = end > run.size ? end - run.size : 0;
    run.size += grown;
    size_ += grown;  // less than the address space
  }
  in_memory_ = runs_.size();
}

std::uint64_t MemoryRuns::offset_of(const std::byte* data) const {
  const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(in_memory_);
  const auto after =
      std::upper_bound(runs_.begin(), end, address_of(data),
                       [](std::uint64_t at, const Run& run) { return at < address_of(run.data); });
  if (after == runs_.begin()) {
    return 0;
  }
  const Run& run = *std::prev(after);
  const std::uint64_t distance = address_of(data) - address_of(run.data);
  return distance < run.size ? run.offset + distance : 0;
}

std::uint64_t MemoryRuns::offset_of_made(std::size_t index) const {
  return runs_[in_memory_ + index].offset;
}

const MemoryRuns::Run* MemoryRuns::run_at(std::uint64_t offset) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), offset,
                       [](std::uint64_t at, const Run& run) { return at < run.offset; });
  if (after == runs_.begin()) {
    return nullptr;
  }
  const Run& run = *std::prev(after);
  return offset - run.offset < run.size ? &run : nullptr;
}

Result<std::span<const std::byte>> MemoryRuns::bytes(std::uint64_t offset,
                                                     std::uint64_t length) const {
  if (length == 0) {
    return std::span<const std::byte>();
  }
  const Run* const run = run_at(offset);
  if (run == nullptr || !range_fits(offset - run->offset, length, run->size)) {
    return fail(ErrorCode::kCorrupt,
                std::to_string(length) + " bytes are requested that are outside all blocks");
  }
  const std::byte* data = run->data;
  if (data == nullptr) {
    Made& made = *made_[run->made];
    const std::lock_guard<std::mutex> lock(made.mutex);
    data = made.bytes.lock().get();
    if (data == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  made.block.name +
                      ": its bytes are produced when they are written, but were needed at another "
                      "time; provide them in memory or in a file");
    }
  }
  return std::span(data + (offset - run->offset), static_cast<std::size_t>(length));
}

Result<MemoryRuns::Held> MemoryRuns::hold(std::uint64_t offset) const {
  const Run* const run = run_at(offset);
  if (run == nullptr || run->data != nullptr) {
    return Held();
  }
  Made& made = *made_[run->made];
  const std::lock_guard<std::mutex> lock(made.mutex);
  auto held = made.bytes.lock();
  if (!held) {
    TRY_ASSIGN_IN(made.block.name, held, make(made.block));
    made.bytes = held;
  }
  return Held(std::move(held));
}

Result<std::shared_ptr<const std::byte>> MemoryRuns::make(const MadeBlock& block) const {
  const auto place = std::make_shared<Place>(*this);
  std::span<std::byte> room;
  TRY(without_exceptions([&]() -> Status {
    room = place->buffer.first(block.size);
    return block.make(room);
  }));
  return std::shared_ptr<const std::byte>(place, room.data());
}

}  // namespace onnx_external
