#include "onnx/placeholder.h"

#include <sys/random.h>

#include <cstring>
#include <random>

namespace onnx_external {

Placeholders::Placeholders() {
  if (::getrandom(nonce_.data(), nonce_.size(), 0) == static_cast<ssize_t>(nonce_.size())) {
    return;
  }
  std::random_device device;  // a kernel without getrandom
  for (char& c : nonce_) {
    c = static_cast<char>(device());
  }
}

std::string Placeholders::text(const Placeholder& placeholder) const {
  std::string out(nonce_.data(), nonce_.size());
  out += static_cast<char>(placeholder.kind);
  out.append(reinterpret_cast<const char*>(&placeholder.number), sizeof(placeholder.number));
  out.append(reinterpret_cast<const char*>(&placeholder.bytes), sizeof(placeholder.bytes));
  return out;
}

bool Placeholders::may_stand_in(std::string_view bytes) const {
  return ::memmem(bytes.data(), bytes.size(), nonce_.data(), nonce_.size()) != nullptr;
}

std::optional<Placeholder> Placeholders::read(std::string_view raw_data) const {
  if (raw_data.size() != Placeholder::kBytes ||
      std::memcmp(raw_data.data(), nonce_.data(), kNonceBytes) != 0) {
    return std::nullopt;
  }
  Placeholder placeholder;
  const char* at = raw_data.data() + kNonceBytes;
  placeholder.kind = static_cast<Placeholder::Kind>(*at++);
  std::memcpy(&placeholder.number, at, sizeof(placeholder.number));
  std::memcpy(&placeholder.bytes, at + sizeof(placeholder.number), sizeof(placeholder.bytes));
  return placeholder;
}

}  // namespace onnx_external
