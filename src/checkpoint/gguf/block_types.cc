#include "checkpoint/gguf/block_types.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "checkpoint/gguf/unpack_blocks.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr BlockType plain_type(std::uint32_t id, std::string_view name, std::uint32_t bytes,
                               DType dtype) {
  BlockType type;
  type.id = id;
  type.name = name;
  type.bytes = bytes;
  type.plain = dtype;
  return type;
}

constexpr std::uint32_t kSmall = 32;   // values of a block
constexpr std::uint32_t kSuper = 256;  // of a block of blocks

constexpr bool kMinima = true;

using Unpack = void (*)(const std::uint8_t*, const BlockCodes&);

constexpr BlockType coded_type(std::uint32_t id, std::string_view name, std::uint32_t values,
                               std::uint32_t bytes, std::uint32_t bits, std::uint32_t group,
                               Unpack unpack, bool has_minima = false, std::int32_t middle = 0) {
  BlockType type;
  type.id = id;
  type.name = name;
  type.values = values;
  type.bytes = bytes;
  type.bits = bits;
  type.group = group;
  type.middle = middle;
  type.has_minima = has_minima;
  type.unpack = unpack;
  return type;
}

// The middle of codes with minima makes them smallest, which keeps most of what a product rounds.
constexpr std::array kTypes = {
    plain_type(0, "F32", 4, DType::kFloat32),
    plain_type(1, "F16", 2, DType::kFloat16),
    coded_type(2, "Q4_0", kSmall, 18, 4, 32, unpack_q4_0),
    coded_type(3, "Q4_1", kSmall, 20, 4, 32, unpack_q4_1, kMinima, 8),
    coded_type(6, "Q5_0", kSmall, 22, 8, 32, unpack_q5_0),
    coded_type(7, "Q5_1", kSmall, 24, 8, 32, unpack_q5_1, kMinima, 16),
    coded_type(8, "Q8_0", kSmall, 34, 8, 32, unpack_q8_0),
    coded_type(10, "Q2_K", kSuper, 84, 4, 16, unpack_q2_k, kMinima, 2),
    coded_type(11, "Q3_K", kSuper, 110, 4, 16, unpack_q3_k),
    coded_type(12, "Q4_K", kSuper, 144, 4, 32, unpack_q4_k, kMinima, 8),
    coded_type(13, "Q5_K", kSuper, 176, 8, 32, unpack_q5_k, kMinima, 16),
    coded_type(14, "Q6_K", kSuper, 210, 8, 16, unpack_q6_k),
    coded_type(16, "IQ2_XXS", kSuper, 66, 8, 32, unpack_iq2_xxs),
    coded_type(17, "IQ2_XS", kSuper, 74, 8, 16, unpack_iq2_xs),
    coded_type(18, "IQ3_XXS", kSuper, 98, 8, 32, unpack_iq3_xxs),
    coded_type(19, "IQ1_S", kSuper, 50, 8, 32, unpack_iq1_s),
    coded_type(20, "IQ4_NL", kSmall, 18, 8, 32, unpack_iq4_nl),
    coded_type(21, "IQ3_S", kSuper, 110, 8, 32, unpack_iq3_s),
    coded_type(22, "IQ2_S", kSuper, 82, 8, 16, unpack_iq2_s),
    coded_type(23, "IQ4_XS", kSuper, 136, 8, 32, unpack_iq4_xs),
    plain_type(24, "I8", 1, DType::kInt8),
    plain_type(25, "I16", 2, DType::kInt16),
    plain_type(26, "I32", 4, DType::kInt32),
    plain_type(27, "I64", 8, DType::kInt64),
    plain_type(28, "F64", 8, DType::kFloat64),
    coded_type(29, "IQ1_M", kSuper, 56, 8, 16, unpack_iq1_m),
    plain_type(30, "BF16", 2, DType::kBFloat16),
    coded_type(34, "TQ1_0", kSuper, 54, 4, 256, unpack_tq1_0),
    coded_type(35, "TQ2_0", kSuper, 66, 4, 256, unpack_tq2_0),
    coded_type(39, "MXFP4", kSmall, 17, 8, 32, unpack_mxfp4),
    coded_type(40, "NVFP4", 64, 36, 8, 16, unpack_nvfp4),
    coded_type(41, "Q1_0", 128, 18, 4, 128, unpack_q1_0),
    coded_type(42, "Q2_0", 64, 18, 4, 64, unpack_q2_0),
};

}  // namespace

const BlockType* find_block_type(std::uint32_t id) {
  const auto* const found = std::lower_bound(
      kTypes.begin(), kTypes.end(), id,
      [](const BlockType& type, std::uint32_t number) { return type.id < number; });
  return found != kTypes.end() && found->id == id ? &*found : nullptr;
}

std::span<const BlockType> all_block_types() {
  return kTypes;
}

bool has_floats(const BlockType& type) {
  return type.is_quantized() || type.plain == DType::kFloat32 || type.plain == DType::kFloat16 ||
         type.plain == DType::kBFloat16;
}

void decode_row(const BlockType& type, std::span<const std::byte> blocks, std::span<float> out) {
  assert(has_floats(type) && out.size() % type.values == 0 &&
         blocks.size() == out.size() / type.values * type.bytes);
  if (type.plain) {
    cast_elements(*type.plain, DType::kFloat32, blocks, std::as_writable_bytes(out));
    return;
  }
  std::array<std::int8_t, kMostBlockValues> codes;
  std::array<float, kMostBlockGroups> scales;
  std::array<float, kMostBlockGroups> minima{};
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks.data());
  float* at = out.data();
  for (std::size_t left = out.size() / type.values; left > 0;) {
    const std::size_t count = std::min(left, blocks_at_once(type));
    unpack_blocks(type, block, count, {codes, scales, minima});
    for (std::size_t g = 0; g < count * type.groups(); ++g, at += type.group) {
      const std::int8_t* const code = codes.data() + g * type.group;
      for (std::size_t i = 0; i < type.group; ++i) {
        at[i] = scales[g] * static_cast<float>(code[i]);
      }
      for (std::size_t i = 0; type.has_minima && i < type.group; ++i) {
        at[i] = at[i] + minima[g];
      }
    }
    block += count * type.bytes;
    left -= count;
  }
}

}  // namespace onnx_external
