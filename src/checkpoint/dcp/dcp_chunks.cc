#include "checkpoint/dcp/dcp_chunks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

std::uint64_t as_unsigned(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

Status check_inside(std::span<const std::int64_t> shape, const ChunkBox& box) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.sizes[d] > shape[d] || box.offsets[d] > shape[d] - box.sizes[d]) {
      return fail(ErrorCode::kCorrupt, "its chunk of " + shape_text(box.sizes) + " at " +
                                           shape_text(box.offsets) + " extends beyond its shape " +
                                           shape_text(shape));
    }
  }
  return {};
}

// The number of boxes that an element lies in is the sum, over the corners at or before it in every
// dimension, of +1 or -1: +1 for a corner where an even number of its box's dimensions end, -1 for
// an odd number. It is 1 everywhere exactly if the corners cancel out except for +1 at the origin.
// Corners on the far sides of the tensor affect no element.
class Corners {
 public:
  explicit Corners(std::span<const std::int64_t> shape, std::span<const ChunkBox> boxes)
      : shape_(shape) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (std::any_of(boxes.begin(), boxes.end(),
                      [&](const ChunkBox& box) { return box.sizes[d] != shape[d]; })) {
        cut_.push_back(d);
      }
    }
  }

  [[nodiscard]] std::size_t cut_dimensions() const { return cut_.size(); }

  void add(const ChunkBox& box) {
    for (std::uint64_t ends = 0; ends < std::uint64_t{1} << cut_.size(); ++ends) {
      std::uint64_t place = 0;
      bool outside = false;
      for (std::size_t i = 0; i < cut_.size(); ++i) {
        const std::size_t d = cut_[i];
        const bool at_end = (ends >> i & 1) != 0;
        const std::int64_t index = box.offsets[d] + (at_end ? box.sizes[d] : 0);
        outside = outside || index == shape_[d];
        place = place * as_unsigned(shape_[d]) + (outside ? 0 : as_unsigned(index));
      }
      if (!outside) {
        add(place, __builtin_popcountll(ends) % 2 != 0);
      }
    }
  }

  [[nodiscard]] Status check() {
    add(0, true);  // cancels the +1 that must remain at the origin
    std::sort(corners_.begin(), corners_.end());
    for (std::size_t i = 0; i < corners_.size();) {
      const std::uint64_t place = corners_[i] / 2;
      std::int64_t sum = 0;
      for (; i < corners_.size() && corners_[i] / 2 == place; ++i) {
        sum += corners_[i] % 2 == 0 ? 1 : -1;
      }
      if (sum != 0) {
        return fail(ErrorCode::kCorrupt,
                    (sum < 0 ? "none of its chunks contains the element "
                             : "more than one of its chunks contains the element ") +
                        element(place));
      }
    }
    return {};
  }

 private:
  // Positions are less than the number of elements, so a bit is free for the sign.
  void add(std::uint64_t place, bool negative) { corners_.push_back(place * 2 + negative); }

  [[nodiscard]] std::string element(std::uint64_t place) const {
    std::vector<std::int64_t> index(shape_.size(), 0);
    for (std::size_t i = cut_.size(); i-- > 0;) {
      const std::uint64_t size = as_unsigned(shape_[cut_[i]]);
      index[cut_[i]] = static_cast<std::int64_t>(place % size);
      place /= size;
    }
    return shape_text(index);
  }

  std::span<const std::int64_t> shape_;
  std::vector<std::size_t> cut_;
  std::vector<std::uint64_t> corners_;
};

}  // namespace

Status check_cover(std::span<const std::int64_t> shape, std::span<const ChunkBox> boxes) {
  for (const ChunkBox& box : boxes) {
    TRY(check_inside(shape, box));
  }
  Corners corners(shape, boxes);
  const std::size_t cut = corners.cut_dimensions();
  if (cut > kMaxCutDimensions || boxes.size() > kMaxChunkCorners >> cut) {
    return fail(ErrorCode::kUnsupported, "its " + std::to_string(boxes.size()) + " chunks along " +
                                             std::to_string(cut) +
                                             " dimensions are too many to check");
  }
  for (const ChunkBox& box : boxes) {
    corners.add(box);
  }
  return corners.check();
}

struct ChunkedTensor::Box {
  std::uint64_t first = 0;           // first byte in the tensor
  std::size_t dim = 0;               // one index of each outer dimension, all of the inner ones,
  std::uint64_t count = 0;           // and this many of this one
  std::vector<std::uint64_t> index;  // of its first byte
  std::uint64_t bytes = 0;
};

ChunkedTensor::ChunkedTensor(DType dtype, const Shape& shape, std::vector<ChunkSource> chunks)
    : sources_(std::move(chunks)) {
  std::size_t rank = 0;  // up to the innermost dimension that is cut
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::any_of(sources_.begin(), sources_.end(),
                    [&](const ChunkSource& source) { return source.box.sizes[d] != shape[d]; })) {
      rank = d + 1;
    }
  }
  const auto inner = std::span(shape).subspan(rank);
  const std::uint64_t block = std::accumulate(
      inner.begin(), inner.end(), std::uint64_t{byte_size(dtype)},
      [](std::uint64_t product, std::int64_t size) { return product * as_unsigned(size); });
  // The first `rank` values, the last of them in bytes; one dimension of bytes when nothing is cut.
  const auto in_bytes = [&](std::span<const std::int64_t> values, std::uint64_t without_cut) {
    std::vector<std::uint64_t> out(values.begin(),
                                   values.begin() + static_cast<std::ptrdiff_t>(rank));
    if (rank == 0) {
      out.push_back(without_cut);
    } else {
      out.back() *= block;
    }
    return out;
  };
  const auto dims_of = [](std::vector<std::uint64_t> sizes) {
    std::vector<std::uint64_t> steps(sizes.size(), 1);
    for (std::size_t d = sizes.size() - 1; d-- > 0;) {
      steps[d] = steps[d + 1] * sizes[d + 1];
    }
    return Dims{.sizes = std::move(sizes), .steps = std::move(steps)};
  };
  dims_ = dims_of(in_bytes(shape, block));
  const auto start_of = [&](const ChunkSource& source) {
    const auto offsets = in_bytes(source.box.offsets, 0);
    return std::inner_product(offsets.begin(), offsets.end(), dims_.steps.begin(),
                              std::uint64_t{0});
  };
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    order.emplace_back(start_of(sources_[i]), i);
  }
  std::sort(order.begin(), order.end());
  chunks_.reserve(order.size());
  for (const auto& [first, index] : order) {
    const ChunkSource& source = sources_[index];
    Dims dims = dims_of(in_bytes(source.box.sizes, block));
    std::uint64_t end = first + 1;
    for (std::size_t d = 0; d < dims.sizes.size(); ++d) {
      end += (dims.sizes[d] - 1) * dims_.steps[d];
    }
    const std::uint64_t furthest = chunks_.empty() ? end : std::max(end, chunks_.back().furthest);
    chunks_.push_back({.offsets = in_bytes(source.box.offsets, 0),
                       .dims = std::move(dims),
                       .first = first,
                       .end = end,
                       .furthest = furthest,
                       .reader = ElementReader(
                           source.view, source.storage,
                           [&source](std::uint64_t offset, std::span<std::byte> out) {
                             return source.read
                                        ? source.read(offset, out)
                                        : source.file->read(source.storage.offset + offset, out);
                           })});
  }
}

Status ChunkedTensor::read(std::uint64_t first, std::span<std::byte> out) const {
  while (!out.empty()) {
    const Box box = largest_box(first, out.size());
    const auto bytes = static_cast<std::size_t>(box.bytes);
    TRY(read_box(box, out.first(bytes)));
    first += box.bytes;
    out = out.subspan(bytes);
  }
  return {};
}

ChunkedTensor::Box ChunkedTensor::largest_box(std::uint64_t first, std::uint64_t left) const {
  Box box{.first = first, .dim = dims_.sizes.size() - 1, .count = 0, .index = {}, .bytes = 0};
  while (box.dim > 0 && first % dims_.steps[box.dim - 1] == 0 && dims_.steps[box.dim - 1] <= left) {
    --box.dim;
  }
  std::uint64_t rest = first;
  for (const std::uint64_t step : dims_.steps) {
    box.index.push_back(rest / step);
    rest %= step;
  }
  box.count = std::min(dims_.sizes[box.dim] - box.index[box.dim], left / dims_.steps[box.dim]);
  box.bytes = box.count * dims_.steps[box.dim];
  return box;
}

Status ChunkedTensor::read_box(const Box& box, std::span<std::byte> out) const {
  auto chunk = std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& candidate) {
    return candidate.furthest <= box.first;
  });
  for (; chunk != chunks_.end() && chunk->first < box.first + box.bytes; ++chunk) {
    if (chunk->end <= box.first) {
      continue;
    }
    TRY(read_chunk(*chunk, box, out));
  }
  return {};
}

// The intersection of a chunk and a box is one run of the chunk's bytes: one index of its outer
// dimensions, a range of one dimension, and all of the inner ones.
Status ChunkedTensor::read_chunk(const Chunk& chunk, const Box& box,
                                 std::span<std::byte> out) const {
  std::uint64_t begin = 0;
  for (std::size_t d = 0; d < box.dim; ++d) {
    if (box.index[d] < chunk.offsets[d] || box.index[d] - chunk.offsets[d] >= chunk.dims.sizes[d]) {
      return {};
    }
    begin += (box.index[d] - chunk.offsets[d]) * chunk.dims.steps[d];
  }
  const std::size_t d = box.dim;
  const std::uint64_t from = std::max(box.index[d], chunk.offsets[d]);
  const std::uint64_t to =
      std::min(box.index[d] + box.count, chunk.offsets[d] + chunk.dims.sizes[d]);
  if (from >= to) {
    return {};
  }
  begin += (from - chunk.offsets[d]) * chunk.dims.steps[d];
  const std::uint64_t length = (to - from) * chunk.dims.steps[d];
  if (chunk.dims.steps[d] != dims_.steps[d]) {
    return scatter(chunk, begin, length, box, out);
  }
  return chunk.reader.read(
      begin, out.subspan(static_cast<std::size_t>((from - box.index[d]) * dims_.steps[d]),
                         static_cast<std::size_t>(length)));
}

// Copies bytes [begin, begin + length) of the chunk to their places in `out`, row by row.
Status ChunkedTensor::scatter(const Chunk& chunk, std::uint64_t begin, std::uint64_t length,
                              const Box& box, std::span<std::byte> out) const {
  const std::size_t last = dims_.sizes.size() - 1;
  std::vector<std::uint64_t> index;  // of the next byte in the chunk
  std::uint64_t row = 0;             // where the chunk's row begins in the tensor
  std::uint64_t rest = begin;
  for (std::size_t d = 0; d <= last; ++d) {
    index.push_back(rest / chunk.dims.steps[d]);
    rest %= chunk.dims.steps[d];
    row += (chunk.offsets[d] + (d == last ? 0 : index[d])) * dims_.steps[d];
  }
  const std::uint64_t scratch_bytes = std::min(length, kScatterBytes);
  const auto scratch =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(scratch_bytes));
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t piece = std::min(scratch_bytes, length - done);
    TRY(chunk.reader.read(begin + done, {scratch.get(), static_cast<std::size_t>(piece)}));
    done += piece;
    for (std::uint64_t used = 0; used < piece;) {
      const std::uint64_t run = std::min(chunk.dims.sizes[last] - index[last], piece - used);
      std::memcpy(out.data() + (row - box.first + index[last]), scratch.get() + used,
                  static_cast<std::size_t>(run));
      used += run;
      index[last] += run;
      if (index[last] < chunk.dims.sizes[last]) {
        break;  // the piece ends inside the row
      }
      index[last] = 0;
      for (std::size_t d = last; d-- > 0;) {
        row += dims_.steps[d];
        if (++index[d] < chunk.dims.sizes[d]) {
          break;
        }
        row -= index[d] * dims_.steps[d];
        index[d] = 0;
      }
    }
  }
  return {};
}

}  // namespace onnx_external
