// Inflates raw deflate streams, as zip files store them, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The maximum ratio of inflated to stored bytes. Deflate cannot compress better than 1032 to 1 (258
// bytes in two bits), so a larger declared size is an error. kInflateSlack is added to the limit
// for very short streams.
inline constexpr std::uint64_t kMaxInflateRatio = 1032;
inline constexpr std::uint64_t kInflateSlack = 1024;

// A raw deflate stream inside a file.
struct DeflatedRange {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t stored = 0;  // compressed bytes
  std::uint64_t size = 0;    // the exact number of bytes that the stream must inflate to
};

// Returns false if no deflate stream of `stored` bytes can inflate to `size` bytes.
[[nodiscard]] bool inflate_ratio_possible(std::uint64_t stored, std::uint64_t size);

// Passes the inflated bytes to `sink` in order, in chunks of at most 256 KiB, and stops at the
// sink's first error. Uses about 600 KiB of memory for streams of any size. Thread-safe. Fails with
// kCorrupt if the stream is damaged, ends early, or does not inflate to exactly `size` bytes.
[[nodiscard]] Status inflate_range(const SourceFile& file, const DeflatedRange& range,
                                   const std::function<Status(std::span<const std::byte>)>& sink);

// Returns the inflated bytes as a string. Memory is allocated as bytes are inflated, not according
// to the declared size. Requires: the caller has limited range.size.
[[nodiscard]] Result<std::string> inflate_to_string(const SourceFile& file,
                                                    const DeflatedRange& range);

}  // namespace onnx_external
