// Looks up the dimensions of a GGUF model (width, heads, experts ...) by the letters that stand for
// them in GgufRole::dims (gguf_roles.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/gguf/gguf_metadata.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Limits far above those of real models; they bound the memory that lists of weights take.
inline constexpr std::uint64_t kMaxGgufLayers = 4096;
inline constexpr std::uint64_t kMaxGgufExperts = 65'536;  // in all layers together

class GgufSizes {
 public:
  // Checks the metadata that every model must have. Errors: kCorrupt.
  [[nodiscard]] static Result<GgufSizes> of(const GgufMetadata& metadata,
                                            std::string_view architecture, std::uint64_t tensors);

  [[nodiscard]] std::uint64_t layers() const { return layers_; }
  [[nodiscard]] std::uint64_t experts() const { return experts_; }

  // Reads the numbers of attention heads in a layer, which replace those of the previously entered
  // layer. Errors: kCorrupt.
  [[nodiscard]] Status enter(std::uint64_t layer);

  // Returns the size that a letter denotes; nullopt if neither the metadata nor a tensor has stated
  // it yet.
  [[nodiscard]] std::optional<std::uint64_t> of(char letter) const;
  void learn(char letter, std::uint64_t size) { learned_[index(letter)] = size; }

 private:
  GgufSizes(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  static std::size_t index(char letter) { return static_cast<std::size_t>(letter - 'A'); }
  // Returns the number under a key, or, if the value is an array, its element for the layer;
  // nullopt if there is no such key.
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
