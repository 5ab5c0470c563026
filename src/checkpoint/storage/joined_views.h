// Storages that are joined from views of others, such as the stacked experts of a mixture. Code
// that does not read rows as plain bytes finds the original views here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "onnx_external/tensor.h"

namespace onnx_external {

struct FileContents;  // file_contents.h

// A box of a joined storage, whose size is the shape of the view.
struct JoinedPart {
  std::vector<std::int64_t> offsets;
  TensorView view;
};

// The parts of a storage, which has the elements of `shape` in row-major order.
struct JoinedParts {
  Shape shape;
  std::vector<JoinedPart> parts;  // side by side along one dimension, by rising offset
};

// The rows of a view of a joined storage, as views [rows, columns] of storages that are not joined,
// in the order of the rows: row-major, without gaps. Nullopt if rows run across parts, or there are
// too many such views. Requires: the view lies inside its storage.
[[nodiscard]] std::optional<std::vector<TensorView>> rows_behind(const FileContents& all,
                                                                 const TensorView& view,
                                                                 std::int64_t columns);

}  // namespace onnx_external
