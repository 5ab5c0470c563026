#include "tensor/whole_elements.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/try.h"

namespace onnx_external {

Status read_whole_elements(std::uint32_t unit, std::uint64_t first, std::span<std::byte> out,
                           const ReadSource& read_whole) {
  while (!out.empty()) {
    const std::uint64_t skip = first % unit;
    std::size_t taken = out.size() - out.size() % unit;
    if (skip == 0 && taken != 0) {
      TRY(read_whole(first, out.first(taken)));
    } else {
      std::array<std::byte, kMaxElementBytes> one{};
      TRY(read_whole(first - skip, std::span(one).first(unit)));
      taken = std::min<std::size_t>(out.size(), unit - skip);
      std::memcpy(out.data(), one.data() + skip, taken);
    }
    first += taken;
    out = out.subspan(taken);
  }
  return {};
}

}  // namespace onnx_external
