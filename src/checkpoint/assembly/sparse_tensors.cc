#include "checkpoint/assembly/sparse_tensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/try.h"
#include "tensor/block_scatter.h"
#include "tensor/whole_elements.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> corrupt_sparse(std::string what) {
  return fail(ErrorCode::kCorrupt, "it is sparse, and " + std::move(what));
}

std::uint64_t product(std::span<const std::int64_t> sizes) {
  std::uint64_t all = 1;
  for (const std::int64_t size : sizes) {
    all *= static_cast<std::uint64_t>(size);  // a part of a product that was checked
  }
  return all;
}

// Calls use(i, value) for the integers [first, first + count) of a part, read in chunks.
template <typename Use>
Status for_each_integer(const SparsePart& part, std::uint64_t first, std::uint64_t count,
                        const Use& use) {
  constexpr std::uint64_t kChunk = 8192;
  const std::uint32_t unit = byte_size(part.dtype);
  std::vector<std::byte> chunk;
  for (std::uint64_t done = 0; done < count;) {
    const auto some = static_cast<std::size_t>(std::min(kChunk, count - done));
    chunk.resize(some * unit);
    TRY(part.read((first + done) * unit, chunk));
    for (std::size_t i = 0; i < some; ++i, ++done) {
      std::int64_t value = 0;
      if (unit == sizeof(std::int32_t)) {
        std::int32_t narrow = 0;
        std::memcpy(&narrow, chunk.data() + i * unit, unit);
        value = narrow;
      } else {
        std::memcpy(&value, chunk.data() + i * unit, unit);
      }
      TRY(use(done, value));
    }
  }
  return {};
}

Status check_integers(const SparsePart& part, bool narrow_allowed) {
  if (part.dtype == DType::kInt64 || (narrow_allowed && part.dtype == DType::kInt32)) {
    return {};
  }
  return corrupt_sparse("its indices are " + std::string(torch_name(part.dtype)));
}

Status check_index(std::int64_t index, std::uint64_t size) {
  if (index < 0 || static_cast<std::uint64_t>(index) >= size) {
    return corrupt_sparse("index " + std::to_string(index) + " is outside a dimension of " +
                          std::to_string(size));
  }
  return {};
}

tl::unexpected<Error> wrong_shapes(const SparseTensor& tensor) {
  return corrupt_sparse("its shape " + shape_text(tensor.shape) + " does not fit indices " +
                        shape_text(tensor.indices.shape) + " and values " +
                        shape_text(tensor.values.shape));
}

bool ends_with(std::span<const std::int64_t> all, std::span<const std::int64_t> tail) {
  return all.size() >= tail.size() && std::ranges::equal(all.last(tail.size()), tail);
}

using Placed = std::vector<PlacedBlock>;

// indices: [sparse dimensions, n]; values: [n, dense dimensions ...].
Result<Placed> place_coo(const SparseTensor& tensor, MemoryBudget& budget) {
  const Shape& indices = tensor.indices.shape;
  const Shape& values = tensor.values.shape;
  if (indices.size() != 2 || values.empty() || indices[1] != values[0] ||
      static_cast<std::size_t>(indices[0]) + values.size() - 1 != tensor.shape.size() ||
      !ends_with(tensor.shape, std::span(values).subspan(1))) {
    return wrong_shapes(tensor);
  }
  const auto count = static_cast<std::uint64_t>(values[0]);
  TRY(check_integers(tensor.indices, false));
  TRY(budget.take(count, sizeof(PlacedBlock)));
  Placed placed(static_cast<std::size_t>(count));
  for (std::uint64_t d = 0; d < static_cast<std::uint64_t>(indices[0]); ++d) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[d]);
    TRY(for_each_integer(tensor.indices, d * count, count,
                         [&](std::uint64_t i, std::int64_t index) -> Status {
                           PlacedBlock& block = placed[i];
                           block.block = block.block * size + static_cast<std::uint64_t>(index);
                           block.value = i;
                           return check_index(index, size);
                         }));
  }
  for (std::size_t i = 0; i < placed.size(); ++i) {
    placed[i].value = i;  // also where there is no sparse dimension
  }
  return placed;
}

// A compressed tensor as batches of a matrix of blocks.
struct Blocks {
  std::uint64_t batches = 1;
  std::uint64_t rows = 0;  // of blocks
  std::uint64_t columns = 0;
  std::uint64_t height = 1;  // of a block
  std::uint64_t width = 1;   // of a block, in runs of the dense dimensions
  std::uint64_t stored = 0;  // blocks in each batch
  bool by_row = true;        // the rows are the compressed dimension
};

bool has_blocks(SparseLayout layout) {
  return layout == SparseLayout::kBsr || layout == SparseLayout::kBsc;
}

// compressed: [batch ..., n + 1]; indices: [batch ..., stored];
// values: [batch ..., stored, height and width of a block, dense dimensions ...].
Result<Blocks> measure(const SparseTensor& tensor) {
  const std::span<const std::int64_t> shape(tensor.shape);
  const std::span<const std::int64_t> compressed(tensor.compressed.shape);
  const std::span<const std::int64_t> values(tensor.values.shape);
  const std::size_t block_rank = has_blocks(tensor.layout) ? 2 : 0;
  const std::size_t batch = compressed.empty() ? 0 : compressed.size() - 1;
  if (compressed.empty() || tensor.indices.shape.size() != batch + 1 || shape.size() < batch + 2 ||
      values.size() != shape.size() - 1 + block_rank ||
      !std::ranges::equal(compressed.first(batch), shape.first(batch)) ||
      !std::ranges::equal(tensor.indices.shape, values.first(batch + 1)) ||
      !std::ranges::equal(values.first(batch), shape.first(batch)) ||
      !ends_with(values, shape.subspan(batch + 2))) {
    return wrong_shapes(tensor);
  }
  Blocks blocks;
  blocks.batches = product(shape.first(batch));
  blocks.stored = static_cast<std::uint64_t>(values[batch]);
  blocks.by_row = tensor.layout == SparseLayout::kCsr || tensor.layout == SparseLayout::kBsr;
  if (block_rank != 0) {
    blocks.height = static_cast<std::uint64_t>(values[batch + 1]);
    blocks.width = static_cast<std::uint64_t>(values[batch + 2]);
  }
  const auto rows = static_cast<std::uint64_t>(shape[batch]);
  const auto columns = static_cast<std::uint64_t>(shape[batch + 1]);
  if (blocks.height == 0 || blocks.width == 0 || rows % blocks.height != 0 ||
      columns % blocks.width != 0) {
    return wrong_shapes(tensor);
  }
  blocks.rows = rows / blocks.height;
  blocks.columns = columns / blocks.width;
  if (static_cast<std::uint64_t>(compressed[batch]) !=
      (blocks.by_row ? blocks.rows : blocks.columns) + 1) {
    return wrong_shapes(tensor);
  }
  return blocks;
}

// Reads where the indices of each compressed row (or column) of one batch begin, and where they
// end.
Status read_starts(const SparsePart& compressed, std::uint64_t batch, std::uint64_t stored,
                   std::vector<std::uint64_t>& starts) {
  const std::uint64_t count = starts.size();
  return for_each_integer(
      compressed, batch * count, count, [&](std::uint64_t i, std::int64_t start) -> Status {
        const std::uint64_t before = i == 0 ? 0 : starts[i - 1];
        starts[i] = static_cast<std::uint64_t>(start);
        const bool ends_wrong = (i == 0 && start != 0) || (i + 1 == count && starts[i] != stored);
        if (start < 0 || starts[i] < before || starts[i] > stored || ends_wrong) {
          return corrupt_sparse("its compressed indices do not rise from 0 to " +
                                std::to_string(stored));
        }
        return {};
      });
}

Status place_batch(const SparseTensor& tensor, const Blocks& blocks, std::uint64_t batch,
                   const std::vector<std::uint64_t>& starts, Placed& placed) {
  const std::uint64_t size = blocks.by_row ? blocks.columns : blocks.rows;
  std::uint64_t line = 0;
  return for_each_integer(
      tensor.indices, batch * blocks.stored, blocks.stored,
      [&](std::uint64_t i, std::int64_t index) -> Status {
        while (starts[line + 1] <= i) {
          ++line;
        }
        const auto other = static_cast<std::uint64_t>(index);
        const std::uint64_t row = blocks.by_row ? line : other;
        const std::uint64_t column = blocks.by_row ? other : line;
        placed.push_back({.block = (batch * blocks.rows + row) * blocks.columns + column,
                          .value = batch * blocks.stored + i});
        return check_index(index, size);
      });
}

Result<Placed> place_compressed(const SparseTensor& tensor, const Blocks& blocks,
                                MemoryBudget& budget) {
  const std::uint64_t lines = blocks.by_row ? blocks.rows : blocks.columns;
  TRY(check_integers(tensor.compressed, true));
  TRY(check_integers(tensor.indices, true));
  TRY(budget.take(product(tensor.compressed.shape), sizeof(std::uint64_t)));
  TRY(budget.take(product(tensor.indices.shape), sizeof(PlacedBlock)));
  Placed placed;
  placed.reserve(static_cast<std::size_t>(product(tensor.indices.shape)));
  const bool any = blocks.batches != 0;  // otherwise the other dimensions are not bounded
  std::vector<std::uint64_t> starts(any ? static_cast<std::size_t>(lines + 1) : 0);
  for (std::uint64_t batch = 0; batch < blocks.batches; ++batch) {
    TRY(read_starts(tensor.compressed, batch, blocks.stored, starts));
    TRY(place_batch(tensor, blocks, batch, starts, placed));
  }
  return placed;
}

bool has_duplicates(const Placed& placed) {
  const auto duplicate = std::adjacent_find(
      placed.begin(), placed.end(),
      [](const PlacedBlock& a, const PlacedBlock& b) { return a.block == b.block; });
  return duplicate != placed.end();
}

// The scatter stores whole blocks one after the other, but rows of the matrix run across blocks.
ReadSource rows_of_blocks(std::shared_ptr<const BlockScatter> scatter, const Blocks& blocks,
                          std::uint32_t element, std::uint64_t run) {
  const std::uint64_t line = blocks.width * run;  // elements of one row of a block
  const std::uint64_t block = blocks.height * line;
  StridedView view{.element_bytes = element,
                   .sizes = {blocks.batches * blocks.rows, blocks.height, blocks.columns, line},
                   .strides = {blocks.columns * block, line, block, 1}};
  for (std::uint64_t& stride : view.strides) {
    stride *= element;
  }
  return [scatter = std::move(scatter), view](std::uint64_t first, std::span<std::byte> out) {
    const auto gather = [&](std::uint64_t offset, std::span<std::byte> whole) {
      return gather_strided(
          view, offset / view.element_bytes, whole,
          [&](std::uint64_t at, std::span<std::byte> chunk) { return scatter->read(at, chunk); });
    };
    return read_whole_elements(view.element_bytes, first, out, gather);
  };
}

}  // namespace

Result<ReadSource> make_dense(const SparseTensor& tensor, MemoryBudget& budget) {
  const bool coo = tensor.layout == SparseLayout::kCoo;
  TRY_ASSIGN(const auto blocks, coo ? Result<Blocks>(Blocks()) : measure(tensor));
  TRY_ASSIGN(auto placed,
             coo ? place_coo(tensor, budget) : place_compressed(tensor, blocks, budget));
  if (!std::is_sorted(placed.begin(), placed.end())) {
    std::sort(placed.begin(), placed.end());
  }
  const bool duplicates = has_duplicates(placed);
  if (duplicates && !coo) {
    return corrupt_sparse("two of its values have the same position");
  }
  if (duplicates && !can_add(tensor.values.dtype)) {
    return fail(ErrorCode::kUnsupported,
                "it is sparse with several " + std::string(torch_name(tensor.values.dtype)) +
                    " values at one position; save tensor.coalesce() instead");
  }
  // The size of a stored block: all dimensions of the values after the one that counts blocks.
  const std::size_t counted = coo ? 1 : tensor.compressed.shape.size();
  const std::uint64_t run = product(
      std::span(tensor.values.shape).subspan(counted + (has_blocks(tensor.layout) ? 2 : 0)));
  const std::uint32_t element = byte_size(tensor.values.dtype);
  const std::uint64_t block_bytes = blocks.height * blocks.width * run * element;
  if (block_bytes == 0) {
    return ReadSource([](std::uint64_t, std::span<std::byte>) { return Status(); });
  }
  // Blocks with the same index are not bounded by the dense tensor, and take time on every read.
  TRY(duplicates ? budget.take(placed.size(), block_bytes) : Status());
  auto scatter = std::make_shared<const BlockScatter>(std::move(placed), block_bytes,
                                                      tensor.values.dtype, tensor.values.read);
  if (has_blocks(tensor.layout)) {
    return rows_of_blocks(std::move(scatter), blocks, element, run);
  }
  return ReadSource([scatter = std::move(scatter)](std::uint64_t first, std::span<std::byte> out) {
    return scatter->read(first, out);
  });
}

}  // namespace onnx_external
