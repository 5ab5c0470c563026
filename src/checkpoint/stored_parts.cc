#include "checkpoint/stored_parts.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

class PartNames {
 public:
  explicit PartNames(const FileContents& all) {
    for (const TensorView& view : all.tensors) {
      if (const auto found = all.quantized.find(view.storage); found != all.quantized.end()) {
        weights_.emplace(view.name, found->second.get());
      }
    }
    for (const TensorView& view : all.stored) {
      if (!weights_.contains(view.name)) {
        parts_.insert(view.name);
      }
    }
  }

  [[nodiscard]] bool is_taken(const TakenTensor& taken) const {
    const auto weight = weights_.find(taken.name);
    if (weight != weights_.end()) {
      return taken.dtype && has_codes_of(*weight->second, taken);
    }
    for (std::size_t start = 0; start != std::string_view::npos;) {
      if (parts_.contains(taken.name.substr(start))) {
        return true;
      }
      const std::size_t dot = taken.name.find('.', start);
      start = dot == std::string_view::npos ? dot : dot + 1;
    }
    return false;
  }

 private:
  static bool has_codes_of(const QuantizedMatrix& matrix, const TakenTensor& taken) {
    return std::any_of(matrix.parts.begin(), matrix.parts.end(), [&](const TensorView& part) {
      return part.name == taken.name && part.dtype == *taken.dtype;
    });
  }

  NameMap<const QuantizedMatrix*> weights_;
  NameSet parts_;
};

}  // namespace

void list_stored_parts(Checkpoint& checkpoint, std::span<const TakenTensor> taken) {
  CheckpointAccess::Contents& contents = CheckpointAccess::contents(checkpoint);
  FileContents& all = contents.all;
  if (all.stored.empty()) {
    return;
  }
  const PartNames names(all);
  if (std::none_of(taken.begin(), taken.end(),
                   [&](const TakenTensor& one) { return names.is_taken(one); })) {
    return;
  }
  std::vector<TensorView> tensors;
  std::vector<std::uint32_t> arguments;
  OwnedNameSet listed;
  const auto list = [&](TensorView view, std::uint32_t argument) {
    listed.insert(view.name);
    tensors.push_back(std::move(view));
    arguments.push_back(argument);
  };
  for (std::size_t i = 0; i < all.tensors.size(); ++i) {
    const auto found = all.quantized.find(all.tensors[i].storage);
    if (found == all.quantized.end()) {
      list(all.tensors[i], contents.arguments[i]);
      continue;
    }
    for (const TensorView& part : found->second->parts) {
      list(part, contents.arguments[i]);
    }
  }
  for (TensorView& view : all.stored) {
    if (!listed.contains(view.name)) {
      list(std::move(view), 0);
    }
  }
  all.tensors = std::move(tensors);
  contents.arguments = std::move(arguments);
  all.stored.clear();
  all.quantized.clear();
}

}  // namespace onnx_external
