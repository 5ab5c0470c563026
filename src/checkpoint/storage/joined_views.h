// Describes storages that are joined from views of other storages, such as the stacked experts of a
// mixture of experts. Code that needs the original views, and not only the bytes, finds them here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "onnx_external/tensor.h"

namespace onnx_external {

struct FileContents;  // file_contents.h

// The position in a joined storage of one of the views; its size is the shape of the view.
struct JoinedPart {
  std::vector<std::int64_t> offsets;
  TensorView view;
};

// The parts of a joined storage, whose elements are those of `shape` in row-major order.
struct JoinedParts {
  Shape shape;
  std::vector<JoinedPart> parts;  // side by side along one dimension, by ascending offset
};

// Returns the rows of a view of a joined storage as views [rows, columns] of the original storages,
// in row-major order without gaps. Nullopt if rows extend over several parts, or there are too many
// such views. Requires: the view is inside its storage.
[[nodiscard]] std::optional<std::vector<TensorView>> rows_behind(const FileContents& all,
                                                                 const TensorView& view,
                                                                 std::int64_t columns);

}  // namespace onnx_external
