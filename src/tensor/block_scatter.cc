#include "tensor/block_scatter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "tensor/whole_elements.h"

namespace onnx_external {
namespace {

template <typename T>
void add_numbers(std::span<std::byte> sum, std::span<const std::byte> more) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a{};
    T b{};
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, more.data() + at, sizeof(T));
    a = static_cast<T>(a + b);
    std::memcpy(sum.data() + at, &a, sizeof(T));
  }
}

void add_bools(std::span<std::byte> sum, std::span<const std::byte> more) {
  for (std::size_t at = 0; at < sum.size(); ++at) {
    sum[at] |= more[at];
  }
}

// Integers wrap around; signed ones are added as unsigned ones.
void add_elements(DType dtype, std::span<std::byte> sum, std::span<const std::byte> more) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return add_numbers<double>(sum, more);
    case DType::kFloat32:
    case DType::kComplex64:
      return add_numbers<float>(sum, more);
    case DType::kInt64:
    case DType::kUInt64:
      return add_numbers<std::uint64_t>(sum, more);
    case DType::kInt32:
    case DType::kUInt32:
      return add_numbers<std::uint32_t>(sum, more);
    case DType::kInt16:
    case DType::kUInt16:
      return add_numbers<std::uint16_t>(sum, more);
    case DType::kInt8:
    case DType::kUInt8:
      return add_numbers<std::uint8_t>(sum, more);
    default:
      return add_bools(sum, more);
  }
}

}  // namespace

bool can_add(DType dtype) {
  return !is_floating(dtype) || dtype == DType::kFloat64 || dtype == DType::kFloat32 ||
         dtype == DType::kComplex128 || dtype == DType::kComplex64;
}

BlockScatter::BlockScatter(std::vector<PlacedBlock> placed, std::uint64_t block_bytes, DType dtype,
                           ReadSource values)
    : placed_(std::move(placed)),
      block_bytes_(block_bytes),
      dtype_(dtype),
      values_(std::move(values)) {}

Status BlockScatter::read(std::uint64_t first, std::span<std::byte> out) const {
  return read_whole_elements(byte_size(dtype_), first, out,
                             [this](std::uint64_t offset, std::span<std::byte> whole) {
                               return read_elements(offset, whole);
                             });
}

Status BlockScatter::read_elements(std::uint64_t first, std::span<std::byte> out) const {
  std::fill(out.begin(), out.end(), std::byte{0});
  const std::uint64_t last_block = (first + out.size() - 1) / block_bytes_;
  const auto of_block = [](const PlacedBlock& placed, std::uint64_t block) {
    return placed.block < block;
  };
  const auto begin =
      std::lower_bound(placed_.begin(), placed_.end(), first / block_bytes_, of_block);
  const auto end = std::lower_bound(begin, placed_.end(), last_block + 1, of_block);
  const auto last = static_cast<std::size_t>(end - placed_.begin());
  std::vector<std::byte> chunk;
  for (auto at = static_cast<std::size_t>(begin - placed_.begin()); at < last;) {
    const std::size_t run = run_length(at, last);
    // A block larger than a chunk is read in several chunks, and only the part that `out` needs.
    const std::uint64_t start = placed_[at].block * block_bytes_;
    const bool alone = run == 1;
    std::uint64_t skipped = alone && start < first ? first - start : 0;
    const std::uint64_t wanted =
        alone ? std::min(block_bytes_, first + out.size() - start) : run * block_bytes_;
    while (skipped < wanted) {
      chunk.resize(static_cast<std::size_t>(std::min(wanted - skipped, kChunkBytes)));
      TRY(values_(placed_[at].value * block_bytes_ + skipped, chunk));
      if (alone) {
        place(at, chunk, skipped, first, out);
      }
      for (std::size_t i = 0; !alone && i < run; ++i) {
        place(at + i, std::span(chunk).subspan(i * block_bytes_, block_bytes_), 0, first, out);
      }
      skipped += chunk.size();
    }
    at += run;
  }
  return {};
}

std::size_t BlockScatter::run_length(std::size_t begin, std::size_t end) const {
  const auto most = std::max<std::uint64_t>(kChunkBytes / block_bytes_, 1);
  std::size_t run = 1;
  while (begin + run < end && run < most &&
         placed_[begin + run].value == placed_[begin].value + run) {
    ++run;
  }
  return run;
}

// Places `block`, the bytes of a stored block from `skipped` on, in the output.
void BlockScatter::place(std::size_t index, std::span<const std::byte> block, std::uint64_t skipped,
                         std::uint64_t first, std::span<std::byte> out) const {
  std::uint64_t start = placed_[index].block * block_bytes_ + skipped;
  if (start < first) {
    block = block.subspan(static_cast<std::size_t>(first - start));
    start = first;
  }
  const auto at = static_cast<std::size_t>(start - first);
  block = block.first(std::min(block.size(), out.size() - at));
  const auto target = out.subspan(at, block.size());
  if (index != 0 && placed_[index - 1].block == placed_[index].block) {
    add_elements(dtype_, target, block);
  } else {
    std::memcpy(target.data(), block.data(), block.size());
  }
}

}  // namespace onnx_external
