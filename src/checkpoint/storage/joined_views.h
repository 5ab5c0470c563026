// Describes storages that are joined from views of other storages, such as the stacked experts of a
// mixture of experts. The description lets code use the original views instead of the joined bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "onnx_external/tensor.h"

namespace onnx_external {

struct FileContents;  // file_contents.h

// A view and its position in a joined storage.
struct JoinedPart {
  std::vector<std::int64_t> offsets;
  TensorView view;
};

// The parts of a joined storage, which holds a tensor of shape `shape` in row-major order.
struct JoinedParts {
  Shape shape;
  std::vector<JoinedPart> parts;  // side by side along one dimension, by ascending offset
};

// Returns the rows of a view of a joined storage as views [rows, columns] of the original storages,
// in row-major order and without gaps. Returns nullopt if rows extend over several parts, or if
// there would be too many views. Requires: the view is inside its storage.
[[nodiscard]] std::optional<std::vector<TensorView>> rows_behind(const FileContents& all,
                                                                 const TensorView& view,
                                                                 std::int64_t columns);

}  // namespace onnx_external
