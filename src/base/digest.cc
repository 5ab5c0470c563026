#define OPENSSL_SUPPRESS_DEPRECATED  // the functions used are deprecated, but stay
#include "base/digest.h"

#include <libdeflate.h>
#include <zlib.h>

#include <array>

#include "base/text.h"

namespace onnx_external {

void Crc32::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {  // for null, libdeflate returns the CRC-32 of no bytes at all
    value_ = libdeflate_crc32(value_, bytes.data(), bytes.size());
  }
}

std::uint32_t crc32_concat(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  return static_cast<std::uint32_t>(::crc32_combine(crc_a, crc_b, static_cast<z_off_t>(length_b)));
}

// A CRC is linear in the bits of crc_a, so the results of the single bits are combined by XOR.
Crc32Appender::Crc32Appender(std::uint64_t length_b) {
  for (std::size_t bit = 0; bit < moved_.size(); ++bit) {
    moved_[bit] = crc32_concat(std::uint32_t{1} << bit, 0, length_b);
  }
}

std::uint32_t Crc32Appender::operator()(std::uint32_t crc_a, std::uint32_t crc_b) const {
  std::uint32_t crc = crc_b;
  for (const std::uint32_t moved : moved_) {
    crc ^= (crc_a & 1U) != 0 ? moved : 0;
    crc_a >>= 1U;
  }
  return crc;
}

Sha::Sha(Kind kind) {
  if (kind == Kind::kSha1) {
    SHA1_Init(&state_.emplace<SHA_CTX>());
  } else {
    SHA256_Init(&state_.emplace<SHA256_CTX>());
  }
}

void Sha::update(std::span<const std::byte> bytes) {
  if (auto* const sha1 = std::get_if<SHA_CTX>(&state_)) {
    SHA1_Update(sha1, bytes.data(), bytes.size());
  } else {
    SHA256_Update(&std::get<SHA256_CTX>(state_), bytes.data(), bytes.size());
  }
}

std::string Sha::hex() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  std::size_t length = SHA256_DIGEST_LENGTH;
  if (auto* const sha1 = std::get_if<SHA_CTX>(&state_)) {
    SHA1_Final(digest.data(), sha1);
    length = SHA_DIGEST_LENGTH;
  } else {
    SHA256_Final(digest.data(), &std::get<SHA256_CTX>(state_));
  }
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    append_hex(text, digest[i]);
  }
  return text;
}

}  // namespace onnx_external
