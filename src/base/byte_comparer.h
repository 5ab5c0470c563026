// Reads two sources of bytes side by side and compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/io_buffer.h"
#include "base/read_step.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct ByteDifference {
  std::uint64_t byte = 0;  // offset in the sources' own numbering
  std::uint8_t found = 0;
  std::uint8_t wanted = 0;
};

// Fills `out` with the bytes from `at` on.
using ReadBytes = std::function<Status(std::uint64_t at, std::span<std::byte> out)>;
// Returns room.size() bytes from `at` on. It either copies them into `room` and returns `room`, or
// returns a span of them where they already are in memory.
using GiveBytes =
    std::function<Result<std::span<const std::byte>>(std::uint64_t at, std::span<std::byte> room)>;

// Receives bytes for a digest, or to report progress.
using TakeBytes = std::function<Status(std::span<const std::byte> chunk)>;

[[nodiscard]] GiveBytes bytes_read_by(ReadBytes read);
// A source in memory: `bytes` are its bytes from offset `first` on.
[[nodiscard]] GiveBytes bytes_in_memory(std::uint64_t first, std::span<const std::byte> bytes);

struct ComparedBytes {
  ReadBytes found;
  GiveBytes wanted;  // if empty, nothing is compared
  TakeBytes take;    // gets the found bytes, in order
};

struct Comparison {
  std::optional<Error> unreadable;           // why the found bytes could not all be read
  std::optional<ByteDifference> difference;  // the first

  [[nodiscard]] bool equal() const { return !unreadable && !difference; }
};

enum class AtDifference : std::uint8_t {
  kStop,
  kReadOn,  // the rest of the found bytes is read but not compared
};

// Compares sources through two buffers, which it keeps between comparisons. For one thread at a
// time.
class ByteComparer {
 public:
  // Compares the bytes [first, first + nbytes) in steps of at most `step` bytes. With kStop the
  // first step is small, because most tensors that differ do so near their beginning. Returns
  // errors of `wanted` and `take`; an error of `found` is stored in Comparison::unreadable.
  [[nodiscard]] Result<Comparison> compare(std::uint64_t first, std::uint64_t nbytes,
                                           const ComparedBytes& bytes, AtDifference policy,
                                           std::uint64_t step = kReadStepBytes);

 private:
  IoBuffer found_;
  IoBuffer room_;
};

}  // namespace onnx_external
