// Says which weights of transformers' checkpoint the tensors of a GGUF model are, and how their
// rows lie. A pure function of names, shapes and metadata; it reads no bytes of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Rows of stored tensors that are a weight, or a bias. A row of a stored tensor is its last
// dimension; for numbers whose order changes one by one, such as those of a bias, it is one number.
struct GgufWeight {
  std::string name;
  std::vector<std::size_t> from;  // stored tensors, of equal shapes; the rows of two alternate
  // For each of these: a tensor of float32 with a factor for all rows, or one for each of several
  // equal parts.
  std::vector<std::optional<std::size_t>> factors;
  std::uint64_t columns = 0;    // of a row
  std::uint64_t first_row = 0;  // of each stored tensor
  std::uint64_t rows = 0;       // of each stored tensor
  // With heads: row (head, i, half) of the stored tensor is row (head, half, i) of the weight.
  std::uint64_t heads = 0;
  bool minus_one = false;   // from each value
  bool transposed = false;  // the last two dimensions of `shape` are exchanged
  Shape shape;              // of the weight
};

// All weights of a model, in the order of the architecture's table, layer after layer.
// kUnsupported for an architecture that is not read, and for what has no weights, by name;
// kCorrupt for metadata that are missing or do not fit, kMismatch for tensors that are missing or
// surplus or have other shapes than the metadata say.
[[nodiscard]] Result<std::vector<GgufWeight>> name_gguf_weights(const GgufMetadata& metadata,
                                                                std::span<const GgufTensor> tensors,
                                                                std::uint64_t tokens);

// What a file is that is not a language model, such as an adapter, with what to do; empty for a
// model.
[[nodiscard]] std::string gguf_other_kind(const GgufMetadata& metadata, std::size_t tensors);

}  // namespace onnx_external
