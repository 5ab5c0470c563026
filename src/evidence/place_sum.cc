#include "evidence/place_sum.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"

namespace onnx_external {
namespace {

struct Wide {  // an element of 16 bytes
  std::uint64_t low;
  std::uint64_t high;
};

// The finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c): every bit of the input
// changes half of the bits of the output.
std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

std::uint64_t number_of(Wide element) {
  return element.low ^ mix(element.high + 1);
}
template <typename Element>
std::uint64_t number_of(Element element) {
  return element;
}

// Odd, so that no two elements and no two indices collide. Each process draws the key of NameHash
// at random.
std::uint64_t drawn_factor(std::string_view use) {
  return NameHash{}(use) | 1U;
}

}  // namespace

PlaceSum::PlaceSum(std::uint32_t element_bytes, std::uint64_t rows, std::uint64_t columns,
                   Places places)
    : element_bytes_(element_bytes),
      columns_(columns),
      step_(places == Places::kOwn ? 1 : rows),
      row_step_(places == Places::kOwn ? columns : 1),
      element_factor_(drawn_factor("element")),
      place_factor_(drawn_factor("place")) {}

template <typename Element>
void PlaceSum::add_all(std::span<const std::byte> elements) {
  for (std::size_t at = 0; at < elements.size();) {
    const auto run = static_cast<std::size_t>(
        std::min<std::uint64_t>(columns_ - column_, (elements.size() - at) / sizeof(Element)));
    std::uint64_t place = (row_ * row_step_ + column_ * step_) * place_factor_;
    const std::uint64_t next = step_ * place_factor_;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < run; ++i, at += sizeof(Element), place += next) {
      Element element;
      std::memcpy(&element, elements.data() + at, sizeof(Element));
      sum += mix(number_of(element) * element_factor_ + place);
    }
    sum_ += sum;
    column_ += run;
    if (column_ == columns_) {
      column_ = 0;
      ++row_;
    }
  }
}

void PlaceSum::add(std::span<const std::byte> elements) {
  switch (element_bytes_) {
    case 1:
      return add_all<std::uint8_t>(elements);
    case 2:
      return add_all<std::uint16_t>(elements);
    case 4:
      return add_all<std::uint32_t>(elements);
    case 8:
      return add_all<std::uint64_t>(elements);
    default:
      return add_all<Wide>(elements);
  }
}

Result<std::uint64_t> place_sum(const ByteStream& stream, PlaceSum sum) {
  TRY(for_each_chunk(stream, [&](std::span<const std::byte> chunk) {
    sum.add(chunk);
    return true;
  }));
  return sum.value();
}

}  // namespace onnx_external
