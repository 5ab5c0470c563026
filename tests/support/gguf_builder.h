// Writes GGUF files field by field, valid or not, and builds a tiny valid model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onnx_external {

class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;  // innermost first, as in files
    std::uint32_t type = 0;
    std::string bytes;
  };

  template <typename Number>
  static std::string number(Number value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }
  static std::string text(std::string_view value) {
    return number(std::uint64_t{value.size()}) + std::string(value);
  }

  // Adds a key. `value` has the bytes of its type and value.
  GgufBuilder& key(std::string_view name, const std::string& value) {
    keys_.push_back(text(name) + value);
    return *this;
  }
  GgufBuilder& uint(std::string_view name, std::uint32_t value) {
    return key(name, number(std::uint32_t{4}) + number(value));
  }
  GgufBuilder& real(std::string_view name, float value) {
    return key(name, number(std::uint32_t{6}) + number(value));
  }
  GgufBuilder& string(std::string_view name, std::string_view value) {
    return key(name, number(std::uint32_t{8}) + text(value));
  }
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& values) {
    std::string bytes = number(std::uint32_t{9}) + number(std::uint32_t{8});
    bytes += number(std::uint64_t{values.size()});
    for (const std::string& value : values) {
      bytes += text(value);
    }
    return key(name, bytes);
  }
  GgufBuilder& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // Adds a float32 tensor with small values.
  GgufBuilder& floats(std::string_view name, std::vector<std::uint64_t> dims) {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : dims) {
      count *= dim;
    }
    std::string bytes;
    for (std::uint64_t i = 0; i < count; ++i) {
      bytes += number(static_cast<float>(i % 16) / 4);
    }
    return tensor({std::string(name), std::move(dims), 0, std::move(bytes)});
  }

  [[nodiscard]] std::string bytes() const {
    constexpr std::size_t kAlignment = 32;
    const auto pad = [](std::string& to) {
      to.resize((to.size() + kAlignment - 1) / kAlignment * kAlignment);
    };
    std::string head = "GGUF" + number(std::uint32_t{3}) + number(std::uint64_t{tensors_.size()}) +
                       number(std::uint64_t{keys_.size()});
    for (const std::string& entry : keys_) {
      head += entry;
    }
    std::string data;
    for (const Tensor& tensor : tensors_) {
      pad(data);
      head += text(tensor.name) + number(static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) {
        head += number(dim);
      }
      head += number(tensor.type) + number(std::uint64_t{data.size()});
      data += tensor.bytes;
    }
    pad(head);
    return head + data;
  }

 private:
  std::vector<std::string> keys_;
  std::vector<Tensor> tensors_;
};

// Returns a Llama with one layer of width 8, and Q8_0 blocks in its MLP.
inline GgufBuilder tiny_gguf() {
  GgufBuilder model;
  model.string("general.architecture", "llama")
      .uint("llama.block_count", 1)
      .uint("llama.context_length", 16)
      .uint("llama.embedding_length", 8)
      .uint("llama.feed_forward_length", 32)
      .uint("llama.attention.head_count", 2)
      .uint("llama.attention.head_count_kv", 1)
      .real("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .strings("tokenizer.ggml.tokens", {"a", "b", "c"})
      .floats("token_embd.weight", {8, 3})
      .floats("output_norm.weight", {8})
      .floats("blk.0.attn_norm.weight", {8})
      .floats("blk.0.attn_q.weight", {8, 8})
      .floats("blk.0.attn_k.weight", {8, 4})
      .floats("blk.0.attn_v.weight", {8, 4})
      .floats("blk.0.attn_output.weight", {8, 8})
      .floats("blk.0.ffn_norm.weight", {8})
      .floats("blk.0.ffn_gate.weight", {8, 32})
      .floats("blk.0.ffn_up.weight", {8, 32});
  constexpr std::size_t kBlock = 34;
  constexpr std::size_t kBlocks = 8;
  std::string blocks;
  for (std::size_t i = 0; i < kBlocks * kBlock; ++i) {
    blocks += static_cast<char>(i % kBlock == 1 ? 0x3c : i % kBlock == 0 ? 0 : i);
  }
  return model.tensor({"blk.0.ffn_down.weight", {32, 8}, 8, blocks});
}

}  // namespace onnx_external
