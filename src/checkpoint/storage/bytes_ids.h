// Finds the tensors of a checkpoint that share bytes, for mapping, plans, listings and
// verification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Numbers the bytes that tensors have. Two tensors get the same number if they take the same bytes
// from the same place of a file or storage, in the same order, and change them in the same way
// (byte order, torch's lazy bits, conversion). Shapes and element types as such do not matter: a
// reshaped view has the number of its tensor, a transposed one does not. No bytes are read, so
// equal bytes in two places have two numbers.
class BytesIds {
 public:
  // `storages` are those that the views refer to, and must outlive this object.
  explicit BytesIds(std::span<const Storage> storages) : storages_(storages) {}

  // The number of the bytes of `view` once its values are converted to `cast_to`, if given. Numbers
  // are handed out in order, so one that equals the former count() is new. Nullopt for an empty
  // tensor, which shares no bytes.
  // Requires: the view lies inside its storage, and contiguous_nbytes() succeeds.
  [[nodiscard]] std::optional<std::size_t> id_of(const TensorView& view,
                                                 std::optional<DType> cast_to = std::nullopt);
  [[nodiscard]] std::size_t count() const { return ranges_.size() + forms_.size(); }

 private:
  // A range of a file if the storage is neither compressed nor computed, otherwise of the storage.
  using Range = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint64_t>;
  // The transformation of a range, if it is not a plain copy.
  struct Form {
    Range range;
    std::vector<StridedDim> dims;  // bytes
    std::uint32_t swap_unit = 1;
    std::optional<DType> dtype;  // where the values matter, not only their bytes
    bool conj = false;
    bool neg = false;
    std::optional<DType> cast_to;

    friend auto operator<=>(const Form&, const Form&) = default;
  };

  std::span<const Storage> storages_;
  // Trees, because a file chooses the numbers. Nearly all tensors are plain ranges, whose key is
  // small, and most checkpoints list them by ascending offset.
  std::map<Range, std::size_t> ranges_;
  std::map<Form, std::size_t> forms_;
};

}  // namespace onnx_external
