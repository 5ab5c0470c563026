// Reads pickles that follow each other in a source, possibly with other data between them.
//
// The end of a pickle is found by decoding opcodes in blocks of bounded size, so the rest of the
// source is not read. Byte strings that hold a complete torch file (such as the tensors in plain
// pickles) are not loaded; Pickle::bytes_place() returns their range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Returns whether `head` is the beginning of a legacy torch file, which begins with a pickled magic
// number.
[[nodiscard]] bool is_legacy_torch(std::string_view head);
inline constexpr std::uint64_t kLegacyHeadBytes = 32;  // bytes that is_legacy_torch() needs

// A sequence of pickles in a source. For use by one thread at a time.
class PickleStream {
 public:
  // Reads pickles in the range [begin, end) of a source. All positions are positions in the source.
  PickleStream(ReadSource read, std::uint64_t begin, std::uint64_t end)
      : read_(std::move(read)), position_(begin), end_(end) {}
  // Reads pickles in a whole file, which must outlive this object.
  explicit PickleStream(const SourceFile& file);

  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }

  // Reads the pickle at position() and moves past its STOP. Fails with kCorrupt and a message "byte
  // N: ...", or with kUnsupported for a pickle of more than kMaxPickleBytes.
  [[nodiscard]] Result<Pickle> next();

  // Returns at most the next `count` bytes without moving position().
  [[nodiscard]] Result<std::string> peek(std::uint64_t count);

  // Fills `out` from position() and moves past the bytes read; `what` names the data in messages.
  [[nodiscard]] Status read(std::span<std::byte> out, std::string_view what);
  [[nodiscard]] Result<std::int64_t> read_int64(std::string_view what);  // little-endian

  // Skips `length` bytes, which must exist.
  [[nodiscard]] Status skip(std::uint64_t length, std::string_view what);

 private:
  ReadSource read_;
  std::uint64_t position_;
  std::uint64_t end_;
};

}  // namespace onnx_external
