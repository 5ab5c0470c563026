// Raw deflate streams (as zip stores them), inflated in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Deflate cannot do better than 1032 to 1 (258 bytes for two bits): a larger declared size is a
// lie. The slack covers the end of very short streams.
inline constexpr std::uint64_t kMaxInflateRatio = 1032;
inline constexpr std::uint64_t kInflateSlack = 1024;

// A raw deflate stream inside a file.
struct DeflatedRange {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t stored = 0;  // compressed bytes
  std::uint64_t size = 0;    // bytes that it must give, no more and no fewer
};

// False when no deflate stream of `stored` bytes can give `size` bytes.
[[nodiscard]] bool inflate_ratio_possible(std::uint64_t stored, std::uint64_t size);

// Hands the inflated bytes to `sink` in pieces of at most 256 KiB, in order; stops at its first
// error. Uses about 600 KiB whatever the sizes. Thread-safe.
// kCorrupt when the stream is damaged, ends early, or gives other than `size` bytes.
[[nodiscard]] Status inflate_range(const SourceFile& file, const DeflatedRange& range,
                                   const std::function<Status(std::span<const std::byte>)>& sink);

// The inflated bytes as a string, which grows with what arrives, not with what is declared.
// Requires: range.size is a size that the caller is ready to hold.
[[nodiscard]] Result<std::string> inflate_to_string(const SourceFile& file,
                                                    const DeflatedRange& range);

}  // namespace onnx_external
