// Writes a cache line to memory past the caches.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "tensor/copy_plane.h"

namespace onnx_external {

// Copies a cache line. Other threads see it only after finish_streams(). Requires: both places are
// aligned to kCacheLineBytes.
[[gnu::always_inline]] inline void stream_line(const std::byte* from, std::byte* to) {
#if defined(__SSE2__)
  for (std::size_t at = 0; at < kCacheLineBytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#else
  std::memcpy(to, from, kCacheLineBytes);
#endif
}

}  // namespace onnx_external
