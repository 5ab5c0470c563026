// Compares the tensors of an old checkpoint with the corresponding tensors of a new one, for
// learn_map().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Tensors with equal names correspond. A tied parameter has several names, and some programs save
// only one of them. If the new checkpoint lacks a name, the name of another tensor with the same
// storage in the old checkpoint is therefore used instead. Both checkpoints must outlive this
// object. For use by one thread at a time. Results are cached. Indices refer to the tensors of the
// old checkpoint.
class FreshValues {
 public:
  FreshValues(const Checkpoint& old, const Checkpoint& fresh);

  [[nodiscard]] bool lacks(std::uint32_t key) const { return !places_[key]; }

  // Returns the name of the tensor in the new checkpoint. Requires: !lacks(key).
  [[nodiscard]] std::string_view name_of(std::uint32_t key) const {
    return fresh_.tensors()[*places_[key]].name;
  }

  // Returns whether the new checkpoint has the tensor with the same type, shape and bytes.
  [[nodiscard]] Result<bool> unchanged(std::uint32_t key);

  // Returns whether all elements of the tensor are equal in the old checkpoint.
  [[nodiscard]] Result<bool> was_uniform(std::uint32_t key) const;

  // Returns whether the new checkpoint has all these tensors, and they all have the same type and
  // the same bytes.
  [[nodiscard]] Result<bool> all_equal(std::span<const std::uint32_t> keys);

  // Returns whether the tensor is symmetric in the new checkpoint. Requires: it is a square matrix
  // in the old checkpoint.
  [[nodiscard]] Result<bool> is_symmetric(std::uint32_t key) const;

 private:
  void find_tied();
  [[nodiscard]] Result<bool> equal(const Checkpoint& one, std::size_t tensor,
                                   std::size_t fresh) const;

  const Checkpoint& old_;
  const Checkpoint& fresh_;
  std::vector<std::optional<std::uint32_t>> places_;  // index into fresh_.tensors()
  std::vector<std::optional<bool>> unchanged_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> equal_;
};

}  // namespace onnx_external
