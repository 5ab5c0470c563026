// Describes the tensor types in GGUF files. A row of a quantized type consists of blocks, each with
// the codes of 32 to 256 values and their scales. A block of a plain type is one number.
//
// All functions are pure and may be called from any thread.
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

// An unpacked block. Value i is float(scales[g] * codes[i]), where g = i / group. If the type has
// minima, minima[g] is added in float32; otherwise `minima` is not used. The type determines the
// lengths of the spans.
struct BlockCodes {
  std::span<std::int8_t> codes;
  std::span<float> scales;
  std::span<float> minima;
};

struct BlockType {
  std::uint32_t id = 0;        // id in files
  std::string_view name;       // llama.cpp's name, such as "Q4_K"
  std::uint32_t values = 1;    // values in a block
  std::uint32_t bytes = 0;     // bytes of a block
  std::optional<DType> plain;  // the element type; nullopt if the type is quantized

  // For quantized types. The integers that `unpack` returns have `bits` bits and are in the range
  // [middle - 2^(bits-1), middle + 2^(bits-1)). `group` values share a scale.
  std::uint32_t bits = 0;
  std::uint32_t group = 0;
  std::int32_t middle = 0;
  bool has_minima = false;
  void (*unpack)(const std::uint8_t* block, const BlockCodes& out) = nullptr;

  [[nodiscard]] bool is_quantized() const { return !plain; }
  [[nodiscard]] std::uint32_t groups() const { return values / group; }  // groups in a block
};

// Returns null if no type has this id, as is the case for types that llama.cpp has removed.
[[nodiscard]] const BlockType* find_block_type(std::uint32_t id);

// Returns all types, ordered by id.
[[nodiscard]] std::span<const BlockType> all_block_types();

// Returns whether decode_row() supports the type. It supports all types except integers and
// float64.
[[nodiscard]] bool has_floats(const BlockType& type);

// Decodes consecutive blocks to float32 values. The result is bit for bit that of ggml. `blocks`
// may have any alignment. Requires: has_floats(type); `blocks` are out.size() / type.values whole,
// little-endian blocks.
void decode_row(const BlockType& type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace onnx_external
