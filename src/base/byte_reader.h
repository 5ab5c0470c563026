// Reads little-endian numbers and byte ranges one after another from bytes in memory. Every read is
// bounds-checked, and its error names the field that could not be read.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "onnx_external/result.h"

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

namespace onnx_external {

class ByteReader {
 public:
  // `bytes` must outlive the reader. `base` is the offset of `bytes` in the file, and is added to
  // positions in error messages.
  explicit ByteReader(std::span<const std::byte> bytes, std::uint64_t base = 0)
      : bytes_(bytes), base_(base) {}

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - position_; }

  // Requires: position <= size.
  void seek(std::size_t position) { position_ = position; }

  // Reads one number. `what` is the name of the field in the error message: "byte 12: cannot read
  // entry count: 4 bytes are needed, but ..."
  template <std::integral T>
  [[nodiscard]] Result<T> read(std::string_view what) {
    auto raw = take(sizeof(T), what);
    if (!raw) {
      return fail(std::move(raw).error());
    }
    T value{};
    std::memcpy(&value, raw->data(), sizeof(T));
    return value;
  }

  // Returns a view of the next `count` bytes and moves past them.
  [[nodiscard]] Result<std::span<const std::byte>> take(std::uint64_t count,
                                                        std::string_view what) {
    if (count > remaining()) [[unlikely]] {
      return too_short(count, what);
    }
    auto view = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += view.size();
    return view;
  }

 private:
  // Returns the error for a read past the end. Not inlined, to keep the code of take() small,
  // because take() is called very often.
  [[nodiscard, gnu::noinline]] tl::unexpected<Error> too_short(std::uint64_t count,
                                                               std::string_view what) const {
    return fail(ErrorCode::kCorrupt, "byte " + std::to_string(base_ + position_) +
                                         ": cannot read " + std::string(what) + ": " +
                                         std::to_string(count) + " bytes are needed, but " +
                                         std::to_string(remaining()) + " are left");
  }

  std::span<const std::byte> bytes_;
  std::uint64_t base_;
  std::size_t position_ = 0;
};

}  // namespace onnx_external
