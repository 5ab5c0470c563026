#include "base/nonce.h"

#include <sys/random.h>

#include <array>
#include <random>

#include "base/text.h"

namespace onnx_external {

void fill_with_random(std::span<char> out) {
  if (::getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size())) {
    return;
  }
  std::random_device device;  // for kernels without getrandom
  for (char& c : out) {
    c = static_cast<char>(device());
  }
}

std::string nonce_text() {
  std::array<char, 16> bytes{};
  fill_with_random(bytes);
  std::string text;
  for (const char c : bytes) {
    append_hex(text, static_cast<unsigned char>(c));
  }
  return text;
}

}  // namespace onnx_external
