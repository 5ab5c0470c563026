#include "evidence/byte_stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/io_buffer.h"
#include "base/read_step.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Tensors that differ usually do so at the beginning.
constexpr std::uint64_t kFirstPieceBytes = std::uint64_t{4} << 10;

}  // namespace

ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor) {
  return key_stream(checkpoint, tensor, checkpoint.tensors()[tensor].dtype);
}

ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor, DType dtype) {
  const std::uint64_t elements =
      checkpoint.nbytes(tensor) / byte_size(checkpoint.tensors()[tensor].dtype);
  return {elements * byte_size(dtype),
          [&checkpoint, tensor, dtype, at = std::uint64_t{0}](std::span<std::byte> out) mutable {
            return checkpoint.read_as(tensor, dtype, std::exchange(at, at + out.size()), out);
          }};
}

Status for_each_piece(const ByteStream& stream,
                      const std::function<bool(std::span<const std::byte> piece)>& take) {
  IoBuffer buffer;
  for (std::uint64_t done = 0; done < stream.nbytes;) {
    const auto piece = buffer.first(std::min(kReadStepBytes, stream.nbytes - done));
    TRY(stream.next(piece));
    if (!take(piece)) {
      return {};
    }
    done += piece.size();
  }
  return {};
}

Result<bool> equal_streams(const ByteStream& a, const ByteStream& b) {
  if (a.nbytes != b.nbytes) {
    return false;
  }
  IoBuffer first;
  IoBuffer second;
  std::uint64_t step = kFirstPieceBytes;
  for (std::uint64_t done = 0; done < a.nbytes; done += step, step = kReadStepBytes) {
    step = std::min(step, a.nbytes - done);
    const auto one = first.first(step);
    const auto other = second.first(step);
    TRY(a.next(one));
    TRY(b.next(other));
    if (std::memcmp(one.data(), other.data(), one.size()) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace onnx_external
