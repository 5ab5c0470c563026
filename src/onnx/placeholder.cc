#include "onnx/placeholder.h"

#include <sys/random.h>

#include <cstring>
#include <random>

namespace onnx_external {

Placeholders::Placeholders() {
  if (::getrandom(nonce_.data(), nonce_.size(), 0) == static_cast<ssize_t>(nonce_.size())) {
    return;
  }
  std::random_device device;  // for kernels without getrandom
  for (char& c : nonce_) {
    c = static_cast<char>(device());
  }
}

std::string Placeholders::text(std::uint32_t number) const {
  std::string out(nonce_.data(), nonce_.size());
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  return out;
}

std::optional<std::uint32_t> Placeholders::read(std::string_view raw_data) const {
  if (raw_data.size() != kBytes || std::memcmp(raw_data.data(), nonce_.data(), kNonceBytes) != 0) {
    return std::nullopt;
  }
  std::uint32_t number = 0;
  std::memcpy(&number, raw_data.data() + kNonceBytes, sizeof(number));
  return number;
}

}  // namespace onnx_external
