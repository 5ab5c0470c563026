#include "checkpoint/gguf/gguf_sizes.h"

#include <fmt/format.h>

#include <cmath>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Products of two sizes, and sums of such, fit into 64 bits.
constexpr std::uint64_t kMaxGgufSize = (std::uint64_t{1} << 31) - 1;

}  // namespace

Result<GgufSizes> GgufSizes::of(const GgufMetadata& metadata, std::string_view architecture,
                                std::uint64_t tensors) {
  GgufSizes sizes(metadata, architecture);
  TRY_ASSIGN(sizes.layers_, sizes.needed("block_count"));
  if (sizes.layers_ > tensors) {
    return corrupt(fmt::format("{}block_count is {}, but there are {} tensors", sizes.prefix_,
                               sizes.layers_, tensors));
  }
  TRY_ASSIGN(sizes.width_, sizes.needed("embedding_length"));
  TRY(sizes.needed("context_length"));
  TRY_ASSIGN(const auto experts, sizes.number("expert_count"));
  sizes.experts_ = experts.value_or(0);
  if (sizes.layers_ > kMaxGgufLayers || sizes.experts_ * sizes.layers_ > kMaxGgufExperts) {
    return unsupported(
        fmt::format("{} layers of {} experts; at most {} layers and {} experts are supported",
                    sizes.layers_, sizes.experts_, kMaxGgufLayers, kMaxGgufExperts));
  }
  TRY(sizes.enter(0));
  TRY(sizes.check_numbers());
  return sizes;
}

Result<std::optional<std::uint64_t>> GgufSizes::number(std::string_view key,
                                                       std::uint64_t layer) const {
  const std::string name = prefix_ + std::string(key);
  const GgufValue* const value = metadata_.find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const bool is_integer = value->type != GgufType::kString && value->type != GgufType::kBool &&
                          !value->is_float() && value->is_kept();
  if (!is_integer || (value->is_array && value->count <= layer)) {
    return corrupt(quote(name) + " is " + gguf_type_text(*value) +
                   ", neither an integer nor an integer for each layer");
  }
  const std::uint64_t size = value->numbers[static_cast<std::size_t>(value->is_array ? layer : 0)];
  return size <= kMaxGgufSize ? Result<std::optional<std::uint64_t>>(size)
                              : corrupt(fmt::format("{} is {}", quote(name), size));
}

Result<std::uint64_t> GgufSizes::needed(std::string_view key, std::uint64_t layer) const {
  TRY_ASSIGN(const auto size, number(key, layer));
  if (!size || *size == 0) {
    return corrupt(quote(prefix_ + std::string(key)) + (size ? " is 0" : " is missing"));
  }
  return *size;
}

Status GgufSizes::check_numbers() const {
  const auto is_real = [&](std::string_view key) {
    const GgufValue* const value = metadata_.find(prefix_ + std::string(key));
    return value != nullptr && value->is_float() && !value->is_array &&
           std::isfinite(value->real()) && value->real() >= 0;
  };
  if (!is_real("attention.layer_norm_rms_epsilon") && !is_real("attention.layer_norm_epsilon")) {
    return corrupt(
        fmt::format("'{}attention.layer_norm_rms_epsilon' is missing, or not a number", prefix_));
  }
  TRY_ASSIGN(const auto turned, number("rope.dimension_count"));
  if (turned && (*turned % 2 != 0 || *turned > key_size_)) {
    return corrupt(fmt::format("'{}rope.dimension_count' is {}, but heads have {}", prefix_,
                               *turned, key_size_));
  }
  return {};
}

Status GgufSizes::enter(std::uint64_t layer) {
  TRY_ASSIGN(heads_, needed("attention.head_count", layer));
  TRY_ASSIGN(const auto kv_heads, number("attention.head_count_kv", layer));
  TRY_ASSIGN(const auto keys, number("attention.key_length"));
  TRY_ASSIGN(const auto values, number("attention.value_length"));
  kv_heads_ = kv_heads.value_or(heads_);
  if (kv_heads_ == 0 || heads_ % kv_heads_ != 0 || (!keys && width_ % heads_ != 0)) {
    return corrupt(fmt::format("{} heads do not match {} key heads and a width of {}", heads_,
                               kv_heads_, width_));
  }
  key_size_ = keys.value_or(width_ / heads_);
  value_size_ = values.value_or(key_size_);
  for (const char letter : {'F', 'M', 'S'}) {
    learned_[index(letter)] = std::nullopt;
  }
  TRY_ASSIGN(learned_[index('F')], number("feed_forward_length", layer));
  TRY_ASSIGN(learned_[index('M')], number("expert_feed_forward_length", layer));
  TRY_ASSIGN(learned_[index('S')], number("expert_shared_feed_forward_length", layer));
  return {};
}

std::optional<std::uint64_t> GgufSizes::of(char letter) const {
  switch (letter) {
    case 'W':
      return width_;
    case 'N':
      return heads_;
    case 'L':
      return kv_heads_;
    case 'H':
      return key_size_;
    case 'Q':
      return heads_ * key_size_;
    case 'K':
      return kv_heads_ * key_size_;
    case 'U':
      return kv_heads_ * value_size_;
    case 'O':
      return heads_ * value_size_;
    case 'P':
      return heads_ * key_size_ + kv_heads_ * (key_size_ + value_size_);
    case 'X':
      return experts_;
    case 'G': {
      const auto inner = learned_[index('F')];
      return inner ? std::optional(2 * *inner) : std::nullopt;
    }
    default:
      return learned_[index(letter)];
  }
}

}  // namespace onnx_external
