// Reads two sources of bytes side by side and compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/io_buffer.h"
#include "base/read_step.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct ByteDifference {
  std::uint64_t byte = 0;  // offset, counted like `first` of compare()
  std::uint8_t found = 0;
  std::uint8_t wanted = 0;
};

// A source that fills `out` with its bytes, starting at offset `at`.
using ReadBytes = std::function<Status(std::uint64_t at, std::span<std::byte> out)>;
// A source that returns room.size() bytes, starting at offset `at`. It either copies them into
// `room` and returns `room`, or returns a span of bytes that are already in memory.
using GiveBytes =
    std::function<Result<std::span<const std::byte>>(std::uint64_t at, std::span<std::byte> room)>;

// A function that receives bytes, for example to compute a digest or to report progress.
using TakeBytes = std::function<Status(std::span<const std::byte> chunk)>;

[[nodiscard]] GiveBytes bytes_read_by(ReadBytes read);
// Returns a source for the range of `file` that begins at `offset`. The file must outlive it.
[[nodiscard]] GiveBytes bytes_in_file(const SourceFile& file, std::uint64_t offset);
// Returns a source for bytes in memory, where bytes[0] has offset `first`.
[[nodiscard]] GiveBytes bytes_in_memory(std::uint64_t first, std::span<const std::byte> bytes);

struct ComparedBytes {
  GiveBytes found;
  GiveBytes wanted;  // if empty, nothing is compared
  TakeBytes take;    // receives the found bytes, in order
};

struct Comparison {
  std::optional<Error> unreadable;           // the error, if not all found bytes could be read
  std::optional<ByteDifference> difference;  // the first

  [[nodiscard]] bool equal() const { return !unreadable && !difference; }
};

enum class AtDifference : std::uint8_t {
  kStop,
  kReadOn,  // read the rest of the found bytes, but do not compare them
};

// Compares sources through two buffers, which are reused for further comparisons. For use by one
// thread at a time.
class ByteComparer {
 public:
  // Compares the bytes [first, first + nbytes) in steps of at most `step` bytes. With kStop the
  // first step is small, because tensors that differ usually do so near the start. If `wanted` or
  // `take` fails, returns its error. If `found` fails, the error is stored in
  // Comparison::unreadable.
  [[nodiscard]] Result<Comparison> compare(std::uint64_t first, std::uint64_t nbytes,
                                           const ComparedBytes& bytes, AtDifference policy,
                                           std::uint64_t step = kReadStepBytes);

 private:
  IoBuffer found_;
  IoBuffer wanted_;
};

}  // namespace onnx_external
