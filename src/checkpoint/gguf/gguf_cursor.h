// Reads the header of a GGUF file from start to end through a buffer of fixed size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/try.h"
#include "onnx_external/result.h"

namespace onnx_external {

class GgufCursor {
 public:
  // Reads at most the first `limit` bytes. `file` must outlive this object.
  GgufCursor(const SourceFile& file, std::uint64_t limit)
      : file_(file), end_(std::min(file.size(), limit)) {}

  void set_swapped(bool swapped) { swapped_ = swapped; }

  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return end_ - at_; }

  // Reads a number of 1, 2, 4 or 8 bytes in the file's byte order. Fails with kCorrupt at the end
  // of the data.
  template <std::unsigned_integral Number>
  [[nodiscard]] Result<Number> number() {
    Number value{};
    TRY(copy(std::as_writable_bytes(std::span(&value, 1))));
    if (swapped_) {
      auto bytes = std::bit_cast<std::array<std::byte, sizeof(Number)>>(value);
      std::reverse(bytes.begin(), bytes.end());
      value = std::bit_cast<Number>(bytes);
    }
    return value;
  }

  // Reads a string, which is stored as its length in 8 bytes, followed by its bytes. Fails with
  // kCorrupt at the end of the data, and with kUnsupported if the string has more than `most`
  // bytes.
  [[nodiscard]] Result<std::string> text(std::uint64_t most);

  [[nodiscard]] Status skip(std::uint64_t bytes);
  // Fails with kCorrupt if fewer than `count` items of at least `each` bytes fit into the remaining
  // data.
  [[nodiscard]] Status expect(std::uint64_t count, std::uint64_t each) const;

 private:
  [[nodiscard]] Status copy(std::span<std::byte> out);

  const SourceFile& file_;
  std::uint64_t end_;
  std::uint64_t at_ = 0;
  bool swapped_ = false;
  std::vector<std::byte> buffer_;  // bytes [first_, first_ + buffer_.size()) of the file
  std::uint64_t first_ = 0;
};

}  // namespace onnx_external
