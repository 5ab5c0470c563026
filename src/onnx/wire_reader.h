// Reads protobuf's wire format through a small window. The file is neither mapped nor read as a
// whole, and skipped bytes are not read.
//
// Source: protobuf.dev, "Encoding".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/io_buffer.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The maximum size of a model file, and of each message in it, in bytes.
inline constexpr std::uint64_t kMaxMessageBytes = 0x7FFFFFFF;
// Returns the error for a model that would have `bytes` bytes.
[[nodiscard]] tl::unexpected<Error> message_too_large(std::uint64_t bytes);
// The nesting limit for messages and groups, as in protobuf.
inline constexpr int kMaxMessageDepth = 100;

enum class WireType : std::uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  // A length followed by this number of bytes, for messages, byte strings, strings and packed
  // numbers.
  kLength = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

struct WireTag {
  std::uint32_t field = 0;
  WireType type = WireType::kVarint;
};

inline constexpr int kMaxVarintBytes = 10;

// Returns the number of bytes that `value` takes as a varint.
[[nodiscard]] std::size_t varint_bytes(std::uint64_t value);

void append_varint(std::string& out, std::uint64_t value);

// Appends the tag and the length that precede the `bytes` bytes of a message, string or byte
// string.
void append_length_header(std::string& out, std::uint32_t field, std::uint64_t bytes);

// The source of the bytes, which is a file or memory. Neither is owned.
class WireInput {
 public:
  explicit WireInput(const SourceFile& file) : file_(&file), size_(file.size()) {}
  explicit WireInput(std::string_view text) : text_(text), size_(text.size()) {}

  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Reads out.size() bytes at `offset`. Requires: the range is inside the input.
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const SourceFile* file_ = nullptr;
  std::string_view text_;
  std::uint64_t size_ = 0;
};

// Reads values one after another. After the first error, all member functions return false, and
// status() returns the error. For use by one thread at a time.
class WireReader {
 public:
  explicit WireReader(const WireInput& input) : input_(input), end_(input.size()) {}

  // Moves to `position`, and limits later reads to the bytes before `end`. Requires: position <=
  // end <= size.
  void enter(std::uint64_t position, std::uint64_t end);

  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] bool at_end() const { return position_ == end_; }
  [[nodiscard]] const Status& status() const { return status_; }

  [[nodiscard]] bool varint(std::uint64_t& value);
  [[nodiscard]] bool tag(WireTag& tag);
  // Reads a length in bytes, and checks that at least this many bytes are left.
  [[nodiscard]] bool length(std::uint64_t& bytes);
  [[nodiscard]] bool skip(std::uint64_t bytes);
  // Skips the value that follows `tag`, in a message at nesting depth `depth`.
  [[nodiscard]] bool skip_value(WireTag tag, int depth);
  [[nodiscard]] bool bytes(std::span<std::byte> out);

  // Records the error, and returns false.
  bool stop(ErrorCode code, std::string_view what);

 private:
  [[nodiscard]] bool fill();

  const WireInput& input_;
  std::uint64_t position_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
  std::size_t step_ = 0;
  const std::byte* window_ = nullptr;
  IoBuffer buffer_;
  Status status_;
};

}  // namespace onnx_external
