#include "checkpoint/container/tar_members.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// POSIX.1-2017, pax: "ustar Interchange Format".
constexpr std::size_t kBlock = 512;
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeBytes = 12;
constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kTypeAt = 156;

using Header = std::array<char, kBlock>;

tl::unexpected<Error> corrupt(std::uint64_t at, std::string_view what) {
  return fail(ErrorCode::kCorrupt, "byte " + std::to_string(at) + ": " + std::string(what));
}

// Octal digits between blanks and NULs; GNU's binary numbers (files past 8 GiB) begin with 0x80.
std::optional<std::uint64_t> number(std::string_view field) {
  std::uint64_t value = 0;
  if (field.front() == '\x80') {
    for (const char c : field.substr(1)) {
      if (value >> 56 != 0) {
        return std::nullopt;
      }
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  const std::size_t first = std::min(field.find_first_not_of(' '), field.size());
  for (const char c : field.substr(first)) {
    if (c == ' ' || c == '\0') {
      break;
    }
    if (c < '0' || c > '7') {
      return std::nullopt;
    }
    value = value << 3 | static_cast<std::uint64_t>(c - '0');  // 12 digits have 36 bits
  }
  return value;
}

// Returns the sum of all bytes, where the bytes of the checksum itself count as spaces.
std::uint64_t checksum(const Header& header) {
  std::uint64_t sum = kChecksumBytes * std::uint64_t{' '};
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kChecksumAt && i < kChecksumAt + kChecksumBytes;
    sum += own ? 0 : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

std::string member_name(const Header& header) {
  const std::string_view name = std::string_view(header.data(), kNameBytes);
  return std::string(name.substr(0, name.find('\0')));
}

}  // namespace

Result<std::map<std::string, ByteRange>> tar_members(const SourceFile& file) {
  std::map<std::string, ByteRange> members;
  std::uint64_t at = 0;
  for (std::size_t count = 0; range_fits(at, kBlock, file.size()); ++count) {
    Header header{};
    TRY(file.read(at, std::as_writable_bytes(std::span(header))));
    if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) {
      break;  // the end of the archive
    }
    const std::string_view text(header.data(), header.size());
    if (number(text.substr(kChecksumAt, kChecksumBytes)) != checksum(header)) {
      return corrupt(at, "a tar header whose checksum is wrong; copy or download the file again");
    }
    const auto size = number(text.substr(kSizeAt, kSizeBytes));
    const std::uint64_t data = at + kBlock;
    if (!size || !range_fits(data, *size, file.size())) {
      return corrupt(at, "tar member " + quote(member_name(header)) +
                             " reaches past the end of the file; copy or download it again");
    }
    const char type = header[kTypeAt];
    if ((type == '0' || type == '\0') &&
        !members.emplace(member_name(header), ByteRange{data, *size}).second) {
      return corrupt(at, "two tar members have the name " + quote(member_name(header)));
    }
    if (count == kMaxTarMembers) {
      return fail(ErrorCode::kUnsupported,
                  "a tar file of more than " + std::to_string(kMaxTarMembers) + " members");
    }
    at = data + (*size + kBlock - 1) / kBlock * kBlock;
  }
  return members;
}

}  // namespace onnx_external
