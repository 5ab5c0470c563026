#include "checkpoint/gguf/pack_blocks.h"

#include <algorithm>
#include <array>

#include "checkpoint/gguf/unpack_blocks.h"

namespace onnx_external {
namespace {

// Codes of a block, without a branch in their loops so that compilers vectorize them.
void pack_codes_of_4(const std::int8_t* codes, std::size_t count, unsigned add, std::uint8_t* out) {
  for (std::size_t i = 0; i < count / 2; ++i) {
    const unsigned low = (static_cast<unsigned>(codes[2 * i]) + add) & 15U;
    const unsigned high = (static_cast<unsigned>(codes[2 * i + 1]) + add) & 15U;
    out[i] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

void pack_codes_of_8(const std::int8_t* codes, std::size_t count, unsigned add, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint8_t>(static_cast<unsigned>(codes[i]) + add);
  }
}

}  // namespace

void pack_row(const BlockType& type, const std::uint8_t* blocks, std::size_t count,
              const PackedBlocks& out) {
  std::array<std::int8_t, kMostBlockValues> codes;
  std::array<float, kMostBlockGroups> minima;
  const std::size_t groups = type.groups();
  const unsigned add = (1U << (type.bits - 1)) - static_cast<unsigned>(type.middle);
  const auto middle = static_cast<float>(type.middle);
  for (std::size_t block = 0; block < count;) {
    const std::size_t some = std::min(count - block, blocks_at_once(type));
    float* const scales = out.scales + block * groups;
    unpack_blocks(type, blocks + block * type.bytes, some,
                  {codes, {scales, some * groups}, minima});
    std::uint8_t* const packed = out.codes + block * (type.values * type.bits / 8);
    if (type.bits == 4) {
      pack_codes_of_4(codes.data(), some * type.values, add, packed);
    } else {
      pack_codes_of_8(codes.data(), some * type.values, add, packed);
    }
    for (std::size_t i = 0; type.has_minima && i < some * groups; ++i) {
      out.terms[block * groups + i] = minima[i] + middle * scales[i];
    }
    block += some;
  }
}

}  // namespace onnx_external
