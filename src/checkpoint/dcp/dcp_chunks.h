// Assembles a tensor from the chunks in which a distributed checkpoint stores it. A chunk is a
// rectangular block of the tensor's elements.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "checkpoint/storage/element_reader.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Limits for check_cover(), which needs 8 bytes of memory per corner. Current device meshes have up
// to 4 dimensions. Without these limits, a small file could cause much work.
inline constexpr std::size_t kMaxCutDimensions = 8;
inline constexpr std::uint64_t kMaxChunkCorners = std::uint64_t{1} << 24;

// A box of elements in a tensor. `offsets` and `sizes` have the tensor's rank.
struct ChunkBox {
  std::vector<std::int64_t> offsets;
  Shape sizes;  // all positive
};

// Checks that every element of `shape` is in exactly one box. Fails with kCorrupt otherwise; the
// message states the first element (in row-major order) that is in no box or in several. Takes O(n
// log n) time for n corners. A box has 2^k corners, where k is the number of dimensions that are
// cut. Fails with kUnsupported above kMaxCutDimensions or kMaxChunkCorners. Requires:
// element_count(shape) succeeds and is not 0.
[[nodiscard]] Status check_cover(std::span<const std::int64_t> shape,
                                 std::span<const ChunkBox> boxes);

// A chunk, and the stored tensor that holds its elements.
struct ChunkSource {
  ChunkBox box;
  TensorView view;  // has the shape of the box
  Storage storage;  // a plain range of `file`
  std::shared_ptr<const SourceFile> file;
  ReadSource read = {};  // if set, reads the storage instead of `file`
};

// Reads a tensor that consists of chunks. Immutable: read() may be called from several threads at
// once.
class ChunkedTensor {
 public:
  // Requires: check_cover() of the boxes succeeded.
  ChunkedTensor(DType dtype, const Shape& shape, std::vector<ChunkSource> chunks);
  ChunkedTensor(const ChunkedTensor&) = delete;  // because the readers point into chunks_
  ChunkedTensor& operator=(const ChunkedTensor&) = delete;

  // Reads the bytes [first, first + out.size()) of the contiguous, little-endian, row-major tensor.
  // Each chunk in this range is read in runs that are as long as possible. A run that is also
  // contiguous in `out` is read directly into `out`, and any other run through kScatterBytes of
  // scratch memory.
  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const;
  static constexpr std::uint64_t kScatterBytes = std::uint64_t{256} << 10;

 private:
  // Dimensions for copying. The innermost dimension that is cut and all dimensions inside it are
  // merged into one dimension, whose size is in bytes.
  struct Dims {
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> steps;  // bytes from one index to the next
  };
  struct Chunk {
    std::vector<std::uint64_t> offsets;
    Dims dims;
    std::uint64_t first = 0;     // the first byte of the chunk in the tensor
    std::uint64_t end = 0;       // the byte after its last byte
    std::uint64_t furthest = 0;  // the largest `end` among this chunk and all earlier ones
    ElementReader reader;
  };
  struct Box;  // a box of the tensor that is read into `out`
  [[nodiscard]] Box largest_box(std::uint64_t first, std::uint64_t left) const;
  [[nodiscard]] Status read_box(const Box& box, std::span<std::byte> out) const;
  [[nodiscard]] Status read_chunk(const Chunk& chunk, const Box& box,
                                  std::span<std::byte> out) const;
  [[nodiscard]] Status scatter(const Chunk& chunk, std::uint64_t begin, std::uint64_t length,
                               const Box& box, std::span<std::byte> out) const;

  std::vector<ChunkSource> sources_;
  Dims dims_;
  std::vector<Chunk> chunks_;  // sorted by `first`
};

}  // namespace onnx_external
