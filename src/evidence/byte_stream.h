// Reads tensors as streams of bytes, and compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A stream of the bytes of a contiguous, little-endian tensor. The checkpoint or model must outlive
// the stream. For use by one thread at a time.
struct ByteStream {
  std::uint64_t nbytes = 0;
  // Fills `out` with the next bytes. All sizes except the last must be multiples of 16.
  std::function<Status(std::span<std::byte> out)> next = {};
  // True if the bytes are produced on demand (LazyBytes in provided_tensors.h). They are in memory
  // from the first read to the last. A thread may have only one such stream open at a time.
  bool is_made = false;
};

[[nodiscard]] ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor);

// Returns a stream of the values converted to `dtype`, as by Checkpoint::read_as(). Requires: the
// types can be converted.
[[nodiscard]] ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor, DType dtype);

// Calls `take` with successive chunks of at most kReadStepBytes until `take` returns false. A chunk
// consists of whole elements of up to 16 bytes.
[[nodiscard]] Status for_each_chunk(
    const ByteStream& stream, const std::function<bool(std::span<const std::byte> chunk)>& take);

// Returns whether the streams are equal. Reads both streams up to the first chunk that differs. The
// first chunks are small.
[[nodiscard]] Result<bool> equal_streams(const ByteStream& a, const ByteStream& b);

// Returns whether all elements of a stream are equal. `element_bytes` is the size of an element.
// Reads up to the chunk with the first different element.
[[nodiscard]] Result<bool> is_uniform(const ByteStream& stream, std::uint64_t element_bytes);

}  // namespace onnx_external
