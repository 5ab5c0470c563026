#include "evidence/byte_stream.h"

#include <algorithm>
#include <utility>

#include "base/byte_comparer.h"
#include "base/io_buffer.h"
#include "base/read_step.h"
#include "base/try.h"

namespace onnx_external {

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
  const auto bytes_of = [](const ByteStream& stream) {
    return [&stream](std::uint64_t, std::span<std::byte> out) { return stream.next(out); };
  };
  TRY_ASSIGN(auto compared,
             ByteComparer().compare(0, a.nbytes, {bytes_of(a), bytes_read_by(bytes_of(b)), {}},
                                    AtDifference::kStop));
  if (compared.unreadable) {
    return fail(*std::move(compared.unreadable));
  }
  return !compared.difference;
}

}  // namespace onnx_external
