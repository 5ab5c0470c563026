// Describes the tensor types in GGUF files. A row consists of blocks, each of which has the codes
// of 32 to 256 values and their scales; a block of a plain type is one number.
//
// Pure functions over memory, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "onnx_external/dtype.h"

namespace onnx_external {

inline constexpr std::size_t kMostBlockValues = 256;
inline constexpr std::size_t kMostBlockGroups = 16;

// A block as integers: value i is float(scales[g] * codes[i]), plus minima[g] in float32 if the
// type has minima, where g = i / group. The lengths of the spans follow from the type; `minima` is
// not used for types without minima.
struct BlockCodes {
  std::span<std::int8_t> codes;
  std::span<float> scales;
  std::span<float> minima;
};

struct BlockType {
  std::uint32_t id = 0;        // in files
  std::string_view name;       // as llama.cpp writes it, such as "Q4_K"
  std::uint32_t values = 1;    // values in a block
  std::uint32_t bytes = 0;     // bytes of a block
  std::optional<DType> plain;  // the element type; nullopt if the type is quantized

  // For quantized types: the number of bits of the integers that `unpack` returns, which are in the
  // range [middle - 2^(bits-1), middle + 2^(bits-1)), and the number of values that share a scale.
  std::uint32_t bits = 0;
  std::uint32_t group = 0;
  std::int32_t middle = 0;
  bool has_minima = false;
  void (*unpack)(const std::uint8_t* block, const BlockCodes& out) = nullptr;

  [[nodiscard]] bool is_quantized() const { return !plain; }
  [[nodiscard]] std::uint32_t groups() const { return values / group; }  // in a block
};

// Returns null if no type has this id, as is the case for types that llama.cpp has removed.
[[nodiscard]] const BlockType* find_block_type(std::uint32_t id);

// All types, ordered by id.
[[nodiscard]] std::span<const BlockType> all_block_types();

// Returns whether decode_row() supports the type: every type but the integers and float64.
[[nodiscard]] bool has_floats(const BlockType& type);

// Decodes consecutive blocks to float32 values, bit for bit as ggml does. Needs no alignment.
// Requires: has_floats(type); `blocks` are out.size() / type.values whole blocks, little-endian.
void decode_row(const BlockType& type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace onnx_external
