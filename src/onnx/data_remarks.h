// Counts the irregularities (DataRemark) in a model's external data entries, and keeps an example
// of each.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "onnx/model_access.h"
#include "onnx_external/model.h"

namespace onnx_external {

class RemarkCounter {
 public:
  void add(DataRemark remark, std::string_view tensor) {
    CountedRemark& counted = counted_[static_cast<std::size_t>(remark)];
    if (counted.tensors++ == 0) {
      counted.first = tensor;
    }
  }

  void add(DataRemarks remarks, std::string_view tensor) {
    for (std::size_t i = 0; !remarks.empty() && i < counted_.size(); ++i) {
      if (const auto remark = static_cast<DataRemark>(i); remarks.has(remark)) {
        add(remark, tensor);
      }
    }
  }

  // Returns the irregularities that at least one tensor has, in the order of the enum.
  [[nodiscard]] std::vector<CountedRemark> list() const {
    std::vector<CountedRemark> found;
    for (std::size_t i = 0; i < counted_.size(); ++i) {
      if (counted_[i].tensors > 0) {
        found.push_back(counted_[i]);
        found.back().remark = static_cast<DataRemark>(i);
      }
    }
    return found;
  }

 private:
  std::array<CountedRemark, kDataRemarks> counted_;
};

// Returns the irregularities of a model's external tensors, except those whose data is in memory.
[[nodiscard]] inline std::vector<CountedRemark> remarks_of(const Model& model) {
  RemarkCounter counter;
  for (const ExternalTensor& tensor : model.external_tensors()) {
    if (!is_in_memory(model, tensor)) {
      counter.add(tensor.remarks, tensor.name);
    }
  }
  return counter.list();
}

}  // namespace onnx_external
