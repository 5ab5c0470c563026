// Looks up the dimensions of a GGUF model (width, heads, experts ...) by their letters in
// GgufRole::dims (gguf_roles.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/gguf/gguf_metadata.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Limits that bound the memory for lists of weights. They are far above the values in real models.
inline constexpr std::uint64_t kMaxGgufLayers = 4096;
inline constexpr std::uint64_t kMaxGgufExperts = 65'536;  // in all layers together

class GgufSizes {
 public:
  // Checks the metadata that every model must have. Errors: kCorrupt.
  [[nodiscard]] static Result<GgufSizes> of(const GgufMetadata& metadata,
                                            std::string_view architecture, std::uint64_t tensors);

  [[nodiscard]] std::uint64_t layers() const { return layers_; }
  [[nodiscard]] std::uint64_t experts() const { return experts_; }

  // Makes `layer` the current layer, and reads its numbers of attention heads. Errors: kCorrupt.
  [[nodiscard]] Status enter(std::uint64_t layer);

  // Returns the size that a letter denotes, or nullopt if it is not in the metadata and has not
  // been learned from a tensor.
  [[nodiscard]] std::optional<std::uint64_t> of(char letter) const;
  void learn(char letter, std::uint64_t size) { learned_[index(letter)] = size; }

 private:
  GgufSizes(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  static std::size_t index(char letter) { return static_cast<std::size_t>(letter - 'A'); }
  // Returns the number under a key. If the value is an array, returns its element for the layer.
  // Returns nullopt if the key does not exist.
  [[nodiscard]] Result<std::optional<std::uint64_t>> number(std::string_view key,
                                                            std::uint64_t layer = 0) const;
  [[nodiscard]] Result<std::uint64_t> needed(std::string_view key, std::uint64_t layer = 0) const;
  [[nodiscard]] Status check_numbers() const;

  const GgufMetadata& metadata_;
  std::string prefix_;
  std::uint64_t layers_ = 0;
  std::uint64_t width_ = 0;
  std::uint64_t experts_ = 0;
  std::uint64_t heads_ = 0;
  std::uint64_t kv_heads_ = 0;
  std::uint64_t key_size_ = 0;
  std::uint64_t value_size_ = 0;
  std::array<std::optional<std::uint64_t>, 26> learned_;
};

}  // namespace onnx_external
