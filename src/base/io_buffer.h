// Provides a reusable, page-aligned buffer for reading files fast.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace onnx_external {

// A page-aligned buffer that grows on demand and loses its contents when it grows. Large blocks
// from malloc begin 16 bytes after the start of a page, and reading a cached file into such a block
// took 4.5 times as long (2.7 instead of 12.5 GB/s on an AMD EPYC, in steps of 256 KiB). The reason
// is that the processor's copy instruction is slow if the target's offset in its page is slightly
// larger than the source's. Large buffers have huge pages where the system allows it, because
// transposing writes each cache line to another page: transposing 1.1 GB of float16 took 0.39 s
// instead of 0.42 (same machine, two threads). For use by one thread at a time.
class IoBuffer {
 public:
  // Returns the first `bytes` bytes of the buffer, after enlarging it if necessary.
  [[nodiscard]] std::span<std::byte> first(std::uint64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    if (!data_ || size > size_) {
      data_.reset();
      const std::align_val_t page = size >= kLeastHugeBytes ? kHugePage : kPage;
      data_ = {new (page) std::byte[size], Delete{page}};
      size_ = size;
      if (page == kHugePage) {
        ::madvise(data_.get(), size, MADV_HUGEPAGE);  // without it, the buffer is only slower
      }
    }
    return {data_.get(), size};
  }

 private:
  static constexpr std::align_val_t kPage{4096};
  static constexpr std::align_val_t kHugePage{std::size_t{2} << 20};
  static constexpr std::size_t kLeastHugeBytes = std::size_t{8} << 20;
  struct Delete {
    std::align_val_t page;
    void operator()(std::byte* data) const { ::operator delete[](data, page); }
  };
  std::unique_ptr<std::byte[], Delete> data_{nullptr, Delete{kPage}};
  std::size_t size_ = 0;
};

}  // namespace onnx_external
