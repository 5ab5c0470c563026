// Converts tensor declarations to views of storages. If a tensor has no storage of its own, as for
// sparse tensors, one is computed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/assembly/quantizer_numbers.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/view_source.h"
#include "checkpoint/torch/wrapped_weight.h"

namespace onnx_external {

// Adds tensors to one FileContents. If several names refer to the same data (the bytes of a numpy
// array, the indices of a sparse tensor), the data is stored once.
class TensorAdder {
 public:
  // All arguments must outlive the adder.
  TensorAdder(const Pickle& pickle, const OpenOptions& options, const FindStorage& find,
              FileContents& part);

  // Adds the tensor. If it is quantized, its scale and zero point are added under names of their
  // own. A weight of torchao (wrapped_weight.h) is added as the tensors that store it, under the
  // names that torchao's safetensors files have for them.
  [[nodiscard]] Status add(std::string name, NodeId node);
  [[nodiscard]] Status add(std::string name, const TensorDeclaration& declared);

 private:
  [[nodiscard]] Status add_value(std::string name, NodeId node);
  [[nodiscard]] Status add_weight(std::string name, WrappedWeight weight);

  // Returns a view of any tensor, without the scale and zero point of a quantized one.
  [[nodiscard]] Result<TensorView> view_of(const TensorDeclaration& declared);
  [[nodiscard]] Result<TensorView> strided_view(const TensorDeclaration& declared);
  [[nodiscard]] Result<std::uint32_t> storage_of(const TensorDeclaration& declared);
  [[nodiscard]] Result<std::uint32_t> storage_of_bytes(const TensorDeclaration& declared);
  [[nodiscard]] Result<TensorView> widened(const TensorView& halves);
  [[nodiscard]] Result<TensorView> dense_view(const TensorDeclaration& declared);
  // Returns a view of a part of a sparse or quantized tensor.
  [[nodiscard]] Result<TensorView> part_view(NodeId node);

  // The scales and zero points that accompany quantized integers.
  using Views = std::vector<TensorView>;
  [[nodiscard]] Result<Views> quantizer_views(const std::string& name, const TensorView& integers,
                                              const Quantizer& quantizer);
  [[nodiscard]] Result<Views> channel_views(const std::string& name, const TensorView& integers,
                                            const Quantizer& quantizer);
  [[nodiscard]] Result<Numbers> channel_numbers(NodeId node, std::int64_t channels);
  [[nodiscard]] TensorView memory_view(std::string name, Shape shape, Numbers numbers);

  [[nodiscard]] ReadSource source_of(const TensorView& view) const {
    return view_source(part_, view, inflated_);
  }

  const Pickle& pickle_;
  const OpenOptions& options_;
  const FindStorage& find_;
  FileContents& part_;
  MemoryBudget budget_;
  // Inflates the compressed records from which data is computed.
  std::shared_ptr<InflatedStorages> inflated_;

  struct HeldBytes {
    std::uint32_t storage = 0;
    bool lower_halves_are_zero = false;  // lower 16 bits of each float32
  };
  std::map<std::pair<SpelledBytes, ByteOrder>, HeldBytes> held_;
  std::map<std::pair<NodeId, SparseLayout>, TensorView> dense_;
  using ViewKey = std::tuple<std::uint32_t, std::uint64_t, Shape, std::vector<std::int64_t>>;
  std::map<ViewKey, std::uint32_t> widened_;
};

}  // namespace onnx_external
