// A treemap: nested boxes with areas proportional to their bytes.
//
// Squarified layout: Bruls, Huizing, van Wijk, "Squarified Treemaps" (2000). Pure and
// deterministic; O(n log n) time. Lengths are in pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inspect/module_tree.h"

namespace onnx_external {

struct Rect {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  [[nodiscard]] double area() const { return width * height; }
};

// Boxes that divide `area` in proportion to `sizes`, in the same order. They are squarest if the
// sizes descend.
// Requires: sizes are positive.
[[nodiscard]] std::vector<Rect> squarify(std::span<const double> sizes, const Rect& area);

enum class BoxKind : std::uint8_t {
  kTensor,
  kModule,  // drawn around its parts, which follow it in the list
  kClosed,  // a module too small to show its parts
  kMore,    // everything that is too small for boxes of its own
};

struct TreemapBox {
  BoxKind kind = BoxKind::kTensor;
  Rect place = {};
  std::size_t node = 0;   // for kMore: the enclosing module
  std::size_t count = 0;  // tensors
  std::uint64_t bytes = 0;
  bool has_header = false;  // an open module with room for its name
};

inline constexpr std::size_t kMaxTreemapBoxes = 10'000;
inline constexpr double kModuleHeader = 16;  // height of the strip for a module's name

// The boxes of node 0's parts, parents before children. The largest modules are opened first, and
// at most kMaxTreemapBoxes boxes are made.
[[nodiscard]] std::vector<TreemapBox> lay_out_treemap(std::span<const ModuleNode> tree,
                                                      const Rect& area);

}  // namespace onnx_external
