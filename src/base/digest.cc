#include "base/digest.h"

#include <libdeflate.h>
#include <openssl/evp.h>
#include <zlib.h>

#include <array>

namespace onnx_external {

void Crc32::update(std::span<const std::byte> bytes) {
  value_ = libdeflate_crc32(value_, bytes.data(), bytes.size());
}

std::uint32_t crc32_concat(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  return static_cast<std::uint32_t>(::crc32_combine(crc_a, crc_b, static_cast<z_off_t>(length_b)));
}

// A CRC is linear in the bits before: those of each bit alone sum to that of all.
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

struct Sha::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> md{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

Sha::Sha(Kind kind) : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->md.get(), kind == Kind::kSha1 ? EVP_sha1() : EVP_sha256(), nullptr);
}

Sha::Sha(Sha&&) noexcept = default;
Sha& Sha::operator=(Sha&&) noexcept = default;
Sha::~Sha() = default;

void Sha::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_->md.get(), bytes.data(), bytes.size());
}

std::string Sha::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(context_->md.get(), digest.data(), &length);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 0xFU];
  }
  return text;
}

}  // namespace onnx_external
