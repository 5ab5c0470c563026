// Represents the metadata of a GGUF file (llama.cpp's model format): keys whose values are numbers,
// strings or arrays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// The types of values, with their ids in files.
enum class GgufType : std::uint32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kUInt32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUInt64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Limits for reading a file. They are far above the values in real models: a vocabulary of 300,000
// tokens takes 10 MiB.
inline constexpr std::uint64_t kMaxGgufHeader = std::uint64_t{256} << 20;  // metadata and tensors
inline constexpr std::uint64_t kMaxGgufKeys = 65'536;
inline constexpr std::uint64_t kMaxGgufKeyBytes = 65'535;  // the format's own limit
inline constexpr std::uint64_t kMaxGgufTensors = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxGgufNameBytes = 1024;
inline constexpr std::uint64_t kMaxGgufItems = std::uint64_t{4} << 20;  // items of kept arrays
inline constexpr std::uint64_t kMaxGgufParts = 99'999;  // the names of parts have five digits

// A number, a string, or an array of numbers or strings.
struct GgufValue {
  GgufType type = GgufType::kUInt32;  // for an array, the type of the items
  bool is_array = false;
  std::uint64_t count = 1;  // number of items
  // The items are in one of these vectors. Both vectors are empty for an array that is not kept.
  std::vector<std::uint64_t> numbers;  // two's complement integers, or bits of doubles
  std::vector<std::string> texts;      // any bytes

  [[nodiscard]] bool is_float() const {
    return type == GgufType::kFloat32 || type == GgufType::kFloat64;
  }
  [[nodiscard]] bool is_signed() const {
    return type == GgufType::kInt8 || type == GgufType::kInt16 || type == GgufType::kInt32 ||
           type == GgufType::kInt64;
  }
  [[nodiscard]] bool is_kept() const { return numbers.size() + texts.size() == count; }

  // Return item `i`. Requires: the items are kept, and are floats or integers, respectively.
  [[nodiscard]] double real(std::size_t i = 0) const;  // items that are floats
  [[nodiscard]] std::int64_t integer(std::size_t i = 0) const {
    return static_cast<std::int64_t>(numbers[i]);
  }

  // Returns the value if it is a single, non-negative integer and not a bool; otherwise nullopt.
  [[nodiscard]] std::optional<std::uint64_t> uint() const;
  // Returns the value if it is a single string; otherwise null.
  [[nodiscard]] const std::string* text() const;
};

struct GgufEntry {
  std::string key;  // UTF-8
  GgufValue value;
};

struct GgufMetadata {
  std::vector<GgufEntry> entries;  // in the order of the file; keys are unique

  // Returns the value of a key, or null if the key does not exist.
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  // Returns the string of a key; empty if the key does not exist or its value is not a string.
  [[nodiscard]] std::string text(std::string_view key) const;
};

// Returns the type of a value as text, such as "uint32", "string", "float32[48]" or
// "string[128256]".
[[nodiscard]] std::string gguf_type_text(const GgufValue& value);

// Describes a file that is not a language model, such as an adapter, and says how to proceed.
// Returns "" for a language model. `tensors` is the number of tensors in the file.
[[nodiscard]] std::string gguf_other_kind(const GgufMetadata& metadata, std::size_t tensors);

// Reads all metadata of a file, including arrays. If a model has several files, the first one has
// the model's metadata. Errors: kNotFound, kIo, kCorrupt, kUnsupported.
[[nodiscard]] Result<GgufMetadata> read_gguf_metadata(const std::filesystem::path& path);

}  // namespace onnx_external
