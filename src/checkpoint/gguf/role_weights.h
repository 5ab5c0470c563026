// Describes the weights of transformers as rows of the tensors that a GGUF architecture stores
// (gguf_roles.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_roles.h"
#include "checkpoint/gguf/gguf_sizes.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The indices of the stored tensors that have one role in one layer.
struct GgufFound {
  std::optional<std::size_t> weight;
  std::optional<std::size_t> bias;
  std::optional<std::size_t> factor;
  // Pairs (index of the expert, index of the tensor), if each expert has its own tensor, as in old
  // files.
  std::vector<std::pair<std::size_t, std::size_t>> experts;
};

// Collects the weights of a model. All arguments of the constructor must outlive this object.
class RoleWeights {
 public:
  RoleWeights(const GgufArchitecture& architecture, std::span<const GgufTensor> tensors,
              const GgufSizes& sizes)
      : of_(architecture), tensors_(tensors), sizes_(sizes) {}

  // Adds the weights of a role. `name` is transformers' name without ".weight"; `up` are the
  // tensors of kUp in the same layer. Fails with kCorrupt if heads cannot be divided into halves.
  // Requires: the tensors that the role needs exist and have its shapes, and experts are sorted and
  // complete.
  [[nodiscard]] Status add(const GgufRole& role, const GgufFound& found, const GgufFound* up,
                           const std::string& name);

  [[nodiscard]] std::vector<GgufWeight> finish() && { return std::move(weights_); }

 private:
  [[nodiscard]] GgufWeight whole(std::string name, std::size_t i,
                                 std::optional<std::size_t> factor = {}) const;
  [[nodiscard]] Result<std::uint64_t> heads_of(GgufForm form) const;
  [[nodiscard]] Status add_one(const GgufRole& role, const GgufFound& found,
                               const std::string& name);
  void add_experts(const GgufFound& found, const std::string& name);
  [[nodiscard]] Status add_split(const GgufFound& found, const std::string& prefix);
  void add_alternating(const GgufFound& gate, const GgufFound& up, const std::string& name);

  const GgufArchitecture& of_;
  std::span<const GgufTensor> tensors_;
  const GgufSizes& sizes_;
  std::vector<GgufWeight> weights_;
};

}  // namespace onnx_external
