#include "inspect/treemap.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace onnx_external {
namespace {

constexpr double kMinBoxArea = 4;     // smaller ones go into one box, "N more"
constexpr double kMinModuleSide = 8;  // smaller modules stay closed
constexpr double kMinHeaderWidth = 44;
constexpr double kMinHeaderHeight = 38;
constexpr double kModulePadding = 2;

// How far from a square the worst box of a row is: its longer side by its shorter one.
double worst_ratio(double largest, double smallest, double sum, double side) {
  const double thickness = sum / side;
  const double longest = largest / thickness;
  const double shortest = smallest / thickness;
  return std::max(std::max(longest, thickness) / std::min(longest, thickness),
                  std::max(shortest, thickness) / std::min(shortest, thickness));
}

// Cuts a row of boxes with these areas off the shorter side of `rest`.
void place_row(std::span<const double> areas, double sum, Rect& rest, std::vector<Rect>& out) {
  const bool is_column = rest.width >= rest.height;
  const double side = is_column ? rest.height : rest.width;
  if (!(side > 0) || !(sum > 0)) {  // rounding has left no room
    out.insert(out.end(), areas.size(), Rect{rest.x, rest.y, 0, 0});
    return;
  }
  const double thickness = std::min(sum / side, is_column ? rest.width : rest.height);
  double at = 0;
  for (std::size_t i = 0; i < areas.size(); ++i) {
    // The last one ends where the side ends, whatever was rounded.
    const double length = i + 1 == areas.size() ? side - at : side * (areas[i] / sum);
    out.push_back(is_column ? Rect{rest.x, rest.y + at, thickness, length}
                            : Rect{rest.x + at, rest.y, length, thickness});
    at += length;
  }
  if (is_column) {
    rest.x += thickness;
    rest.width -= thickness;
  } else {
    rest.y += thickness;
    rest.height -= thickness;
  }
}

struct Part {
  std::size_t node = 0;
  std::uint64_t bytes = 0;
};

class TreemapLayout {
 public:
  explicit TreemapLayout(std::span<const ModuleNode> tree) : tree_(tree) {}

  std::vector<TreemapBox> run(const Rect& area) {
    open(0, area);
    while (!closed_.empty()) {
      const std::size_t box = closed_.top().second;
      closed_.pop();
      open_box(box);
    }
    return std::move(boxes_);
  }

 private:
  void open_box(std::size_t index) {
    TreemapBox& box = boxes_[index];
    const Rect& place = box.place;
    if (std::min(place.width, place.height) < kMinModuleSide || room() < 2) {
      return;
    }
    box.kind = BoxKind::kModule;
    box.has_header = place.width >= kMinHeaderWidth && place.height >= kMinHeaderHeight;
    const double top = box.has_header ? kModuleHeader : kModulePadding;
    const Rect inside{place.x + kModulePadding, place.y + top, place.width - 2 * kModulePadding,
                      place.height - top - kModulePadding};
    open(box.node, inside);
  }

  // Adds a box for each part of a module, the largest first.
  void open(std::size_t node, const Rect& area) {
    std::vector<Part> parts;
    for (const std::size_t child : tree_[node].children) {
      parts.push_back({child, tree_[child].bytes});
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
    const std::size_t shown = count_shown(parts, tree_[node].bytes, area.area());
    std::vector<double> sizes;
    TreemapBox rest{.kind = BoxKind::kMore, .node = node};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i < shown) {
        sizes.push_back(static_cast<double>(parts[i].bytes));
      } else {
        rest.bytes = add_bytes(rest.bytes, parts[i].bytes);
        rest.count += tree_[parts[i].node].tensor_count;
      }
    }
    if (rest.bytes > 0) {
      sizes.push_back(static_cast<double>(rest.bytes));
    }
    const std::vector<Rect> places = squarify(sizes, area);
    for (std::size_t i = 0; i < shown; ++i) {
      add_part(parts[i], places[i]);
    }
    if (rest.bytes > 0) {
      rest.place = places.back();
      boxes_.push_back(rest);
    }
  }

  // How many of the parts get a box of their own; one place stays for the rest.
  [[nodiscard]] std::size_t count_shown(const std::vector<Part>& parts, std::uint64_t bytes,
                                        double area) const {
    const auto too_small = [&](const Part& part) {
      return part.bytes == 0 ||
             area * (static_cast<double>(part.bytes) / static_cast<double>(bytes)) < kMinBoxArea;
    };
    const auto end = std::find_if(parts.begin(), parts.end(), too_small);
    auto shown = static_cast<std::size_t>(end - parts.begin());
    if (shown < parts.size() || shown > room()) {
      shown = std::min(shown, room() - 1);
    }
    // One small part needs no box that says "1 more".
    const bool one_is_left = shown + 1 == parts.size() && parts.back().bytes > 0;
    return one_is_left && shown < room() ? shown + 1 : shown;
  }

  void add_part(const Part& part, const Rect& place) {
    const ModuleNode& node = tree_[part.node];
    boxes_.push_back({node.is_tensor() ? BoxKind::kTensor : BoxKind::kClosed, place, part.node,
                      node.tensor_count, node.bytes});
    if (!node.is_tensor()) {
      // Negative: of equal areas the first one is opened first.
      closed_.emplace(std::pair(place.area(), -static_cast<std::ptrdiff_t>(boxes_.size())),
                      boxes_.size() - 1);
    }
  }

  [[nodiscard]] std::size_t room() const { return kMaxTreemapBoxes - boxes_.size(); }

  std::span<const ModuleNode> tree_;
  std::vector<TreemapBox> boxes_;
  std::priority_queue<std::pair<std::pair<double, std::ptrdiff_t>, std::size_t>> closed_;
};

}  // namespace

std::vector<Rect> squarify(std::span<const double> sizes, const Rect& area) {
  std::vector<Rect> places;
  const double total = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  std::vector<double> areas;
  for (const double size : sizes) {
    areas.push_back(size / total * area.area());
  }
  Rect rest = area;
  for (std::size_t first = 0; first < areas.size();) {
    const double side = std::min(rest.width, rest.height);
    double sum = areas[first];
    double largest = sum;
    double smallest = sum;
    double worst = worst_ratio(largest, smallest, sum, side);
    std::size_t end = first + 1;
    for (; end < areas.size(); ++end) {
      largest = std::max(largest, areas[end]);
      smallest = std::min(smallest, areas[end]);
      const double next = worst_ratio(largest, smallest, sum + areas[end], side);
      if (next > worst) {
        break;
      }
      worst = next;
      sum += areas[end];
    }
    place_row(std::span(areas).subspan(first, end - first), sum, rest, places);
    first = end;
  }
  return places;
}

std::vector<TreemapBox> lay_out_treemap(std::span<const ModuleNode> tree, const Rect& area) {
  return TreemapLayout(tree).run(area);
}

}  // namespace onnx_external
