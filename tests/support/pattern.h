// Makes bytes for copies, which differ from place to place, and their CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/digest.h"

namespace onnx_external {

inline std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  std::uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525U + 1013904223U;
    c = static_cast<char>(state >> 24U);
  }
  return text;
}

inline std::uint32_t crc_of(const std::string& text) {
  Crc32 crc;
  crc.update(std::as_bytes(std::span(text)));
  return crc.value();
}

}  // namespace onnx_external
