// Recognizes tensors of a checkpoint that share bytes, such as tied weights. Mapping, planning,
// listing and verification use it.
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

// Assigns numbers to the bytes of tensors. Two tensors get the same number if they use the bytes at
// the same position of a file or storage, in the same order, and transform them in the same way
// (byte order, torch's lazy bits, conversion). A different shape or element type alone does not
// change the number, so a reshaped view has the same number as its tensor, and a transposed view
// has a different one. No bytes are read, so equal bytes at two positions have different numbers.
class BytesIds {
 public:
  // `storages` are the storages of the views, and must outlive this object.
  explicit BytesIds(std::span<const Storage> storages) : storages_(storages) {}

  // Returns the number for the bytes of `view`, after its values have been converted to `cast_to`,
  // if that is given. Numbers are assigned in ascending order, so the number is new if it equals
  // the count() before the call. Returns nullopt for an empty tensor, which has no bytes to share.
  // Requires: the view is inside its storage, and contiguous_nbytes() succeeds.
  [[nodiscard]] std::optional<std::size_t> id_of(const TensorView& view,
                                                 std::optional<DType> cast_to = std::nullopt);
  [[nodiscard]] std::size_t count() const { return ranges_.size() + forms_.size(); }

 private:
  // A range of a file, or, if the storage is compressed or computed, a range of the storage.
  using Range = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint64_t>;
  // A range and its transformation, for tensors that are not plain copies of a range.
  struct Form {
    Range range;
    std::vector<StridedDim> dims;  // steps in bytes
    std::uint32_t swap_unit = 1;
    std::optional<DType> dtype;  // set if the result depends on the values
    bool conj = false;
    bool neg = false;
    std::optional<DType> cast_to;

    friend auto operator<=>(const Form&, const Form&) = default;
  };

  std::span<const Storage> storages_;
  // These maps are ordered, because the keys come from files, which could force hash collisions.
  // Nearly all tensors are plain ranges, which have a small key, and most checkpoints list them by
  // ascending offset.
  std::map<Range, std::size_t> ranges_;
  std::map<Form, std::size_t> forms_;
};

}  // namespace onnx_external
