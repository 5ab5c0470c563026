#include "base/byte_comparer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kFirstStepBytes = std::uint64_t{4} << 10;

std::optional<ByteDifference> first_difference(std::span<const std::byte> found,
                                               std::span<const std::byte> wanted,
                                               std::uint64_t at) {
  if (std::memcmp(found.data(), wanted.data(), found.size()) == 0) {
    return std::nullopt;
  }
  const auto [a, b] = std::mismatch(found.begin(), found.end(), wanted.begin());
  return ByteDifference{at + static_cast<std::uint64_t>(a - found.begin()),
                        std::to_integer<std::uint8_t>(*a), std::to_integer<std::uint8_t>(*b)};
}

}  // namespace

GiveBytes bytes_read_by(ReadBytes read) {
  return [read = std::move(read)](std::uint64_t at,
                                  std::span<std::byte> room) -> Result<std::span<const std::byte>> {
    TRY(read(at, room));
    return room;
  };
}

GiveBytes bytes_in_file(const SourceFile& file, std::uint64_t offset) {
  return [&file, offset](std::uint64_t at, std::span<std::byte> room) {
    return file.give(offset + at, room);
  };
}

GiveBytes bytes_in_memory(std::uint64_t first, std::span<const std::byte> bytes) {
  return [=](std::uint64_t at, std::span<std::byte> room) {
    return Result<std::span<const std::byte>>(
        bytes.subspan(static_cast<std::size_t>(at - first), room.size()));
  };
}

Result<Comparison> ByteComparer::compare(std::uint64_t first, std::uint64_t nbytes,
                                         const ComparedBytes& bytes, AtDifference policy,
                                         std::uint64_t step) {
  Comparison comparison;
  const bool stops = policy == AtDifference::kStop;
  for (std::uint64_t done = 0; done < nbytes && !(stops && comparison.difference);) {
    const std::uint64_t size =
        std::min(stops && first + done == 0 ? kFirstStepBytes : step, nbytes - done);
    auto found = bytes.found(first + done, found_.first(size));
    if (!found) {
      comparison.unreadable = std::move(found).error();
      break;
    }
    if (bytes.wanted && !comparison.difference) {
      TRY_ASSIGN(const auto wanted, bytes.wanted(first + done, wanted_.first(size)));
      comparison.difference = first_difference(*found, wanted, first + done);
    }
    done += size;
    TRY(bytes.take ? bytes.take(*found) : Status());
  }
  return comparison;
}

}  // namespace onnx_external
