#include "evidence/byte_stream.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/byte_comparer.h"
#include "base/io_buffer.h"
#include "base/read_step.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "evidence/place_sum.h"

namespace onnx_external {
namespace {

// Reads one stream after the other. Two at a time could deadlock, because each waits for memory
// that the other holds.
Result<bool> equal_made(const ByteStream& a, const ByteStream& b) {
  if (a.nbytes == 0) {
    return true;
  }
  constexpr std::uint64_t kMostBytesOfElement = 16;
  const auto unit = static_cast<std::uint32_t>(std::gcd(a.nbytes, kMostBytesOfElement));
  const PlaceSum sum(unit, 1, a.nbytes / unit, PlaceSum::Places::kOwn);
  TRY_ASSIGN(const auto first, place_sum(a, sum));
  TRY_ASSIGN(const auto second, place_sum(b, sum));
  return first == second;
}

}  // namespace

ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor) {
  return key_stream(checkpoint, tensor, checkpoint.tensors()[tensor].dtype);
}

ByteStream key_stream(const Checkpoint& checkpoint, std::size_t tensor, DType dtype) {
  const std::uint64_t elements =
      checkpoint.nbytes(tensor) / byte_size(checkpoint.tensors()[tensor].dtype);
  const TensorView& view = checkpoint.tensors()[tensor];
  const std::uint64_t nbytes = elements * byte_size(dtype);
  const bool is_made = checkpoint.storages()[view.storage].kind == StorageKind::kMade;
  return {nbytes,
          [&checkpoint, tensor, dtype, nbytes, at = std::uint64_t{0},
           held = MemoryRuns::Held()](std::span<std::byte> out) mutable -> Status {
            if (at == 0) {
              TRY_ASSIGN(held, CheckpointAccess::hold(checkpoint, checkpoint.tensors()[tensor]));
            }
            Status status =
                checkpoint.read_as(tensor, dtype, std::exchange(at, at + out.size()), out);
            if (!status || at == nbytes) {
              held.reset();
            }
            return status;
          },
          is_made};
}

Status for_each_chunk(const ByteStream& stream,
                      const std::function<bool(std::span<const std::byte> chunk)>& take) {
  IoBuffer buffer;
  for (std::uint64_t done = 0; done < stream.nbytes;) {
    const auto chunk = buffer.first(std::min(kReadStepBytes, stream.nbytes - done));
    TRY(stream.next(chunk));
    if (!take(chunk)) {
      return {};
    }
    done += chunk.size();
  }
  return {};
}

Result<bool> equal_streams(const ByteStream& a, const ByteStream& b) {
  if (a.nbytes != b.nbytes) {
    return false;
  }
  if (a.is_made && b.is_made) {
    return equal_made(a, b);
  }
  const auto bytes_of = [](const ByteStream& stream) {
    return bytes_read_by(
        [&stream](std::uint64_t, std::span<std::byte> out) { return stream.next(out); });
  };
  TRY_ASSIGN(auto compared, ByteComparer().compare(0, a.nbytes, {bytes_of(a), bytes_of(b), {}},
                                                   AtDifference::kStop));
  if (compared.unreadable) {
    return fail(*std::move(compared.unreadable));
  }
  return !compared.difference;
}

Result<bool> is_uniform(const ByteStream& stream, std::uint64_t element_bytes) {
  const auto bytes = static_cast<std::size_t>(element_bytes);
  bool uniform = true;
  std::vector<std::byte> first;
  TRY(for_each_chunk(stream, [&](std::span<const std::byte> chunk) {
    if (first.empty()) {
      first.assign(chunk.begin(),
                   chunk.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, chunk.size())));
    }
    uniform = std::memcmp(chunk.data(), first.data(), first.size()) == 0 &&
              std::equal(chunk.begin() + static_cast<std::ptrdiff_t>(first.size()), chunk.end(),
                         chunk.begin());
    return uniform;
  }));
  return uniform;
}

}  // namespace onnx_external
