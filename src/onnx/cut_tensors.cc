#include "onnx/cut_tensors.h"

#include <cstring>

#include "base/nonce.h"

namespace onnx_external {

Placeholders::Placeholders() {
  fill_with_random(nonce_);
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
