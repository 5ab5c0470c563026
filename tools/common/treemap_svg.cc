#include "common/treemap_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/size_text.h"
#include "common/output.h"
#include "inspect/module_tree.h"
#include "inspect/treemap.h"

namespace onnx_external {
namespace {

constexpr double kMargin = 16;
constexpr Rect kMap{kMargin, 84, 1168, 700};
constexpr double kWidth = kMap.width + 2 * kMargin;
constexpr double kHeight = kMap.y + kMap.height + kMargin;
constexpr double kMinDrawn = 0.5;  // pixels; thinner boxes would be invisible

constexpr double kThinEdgeSide = 5;  // of boxes that a full edge would hide

constexpr double kFontSize = 11;
constexpr double kLetterWidth = 0.55;  // of the font size, for sans-serif on average
constexpr double kBoldLetterWidth = 0.59;
constexpr double kLabelIndent = 4;
constexpr double kLineHeight = 13;
constexpr std::size_t kMinLetters = 3;

constexpr std::size_t kLegendTypes = 7;
constexpr double kLegendStep = 164;

struct TypeColor {
  std::string_view start;  // of the type's name
  std::string_view color;
};
constexpr std::string_view kOtherColor = "#d5d8dc";
constexpr std::array<TypeColor, 18> kTypeColors{{
    {"float32", "#a9cdf0"},
    {"float64", "#7fa7d8"},
    {"float16", "#b5dfb0"},
    {"bfloat16", "#d4e79e"},
    {"float8", "#f8b8c4"},
    {"float4", "#e898b4"},
    {"int64", "#d3bdec"},
    {"int32", "#bfa6e2"},
    {"int16", "#e3d3f3"},
    {"int8", "#fad08c"},
    {"int4", "#f0b860"},
    {"uint8", "#f7b98b"},
    {"uint4", "#e9a06c"},
    {"uint", "#cbb5d8"},
    {"bool", "#ead9c0"},
    {"complex", "#a8ded3"},
    {"int", "#f0b860"},
    {"string", "#f2e6a8"},
}};

std::string_view color_of(std::string_view type) {
  const auto found = std::find_if(kTypeColors.begin(), kTypeColors.end(),
                                  [&](const TypeColor& c) { return type.starts_with(c.start); });
  return found == kTypeColors.end() ? kOtherColor : found->color;
}

// Escapes markup. shown() has already replaced control characters and broken UTF-8, but not two
// code points that XML forbids: U+FFFE and U+FFFF.
std::string xml_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (text.substr(i).starts_with("\xEF\xBF\xBE") ||
            text.substr(i).starts_with("\xEF\xBF\xBF")) {
          out += "\xEF\xBF\xBD";
          i += 2;
        } else {
          out += text[i];
        }
    }
  }
  return out;
}

std::string safe_name(std::string_view name) {
  return xml_text(shown(name));
}

// The start of a name that fits into `width` pixels, with a mark if it was cut; empty if too little
// of it fits.
std::string label_text(std::string_view name, double width, double font_size = kFontSize) {
  const auto room = static_cast<std::size_t>(std::max(0.0, width / (kLetterWidth * font_size)));
  const std::string whole = shown(name);
  std::size_t letters = 0;
  std::size_t cut = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool starts_letter = (static_cast<unsigned char>(whole[i]) & 0xC0U) != 0x80U;
    if (starts_letter && ++letters == room) {
      cut = i;
    }
  }
  if (letters <= room) {
    return xml_text(whole);
  }
  return room < kMinLetters ? "" : xml_text(std::string_view(whole).substr(0, cut)) + "\u2026";
}

struct TypeUse {
  std::string_view type;
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
};

// The element types, those with the most bytes first.
std::vector<TypeUse> list_types(const Inspection& inspection) {
  std::map<std::string_view, TypeUse> by_type;
  for (const InspectedTensor& tensor : inspection.tensors) {
    TypeUse& use = by_type[tensor.dtype];
    use.type = tensor.dtype;
    use.bytes = add_bytes(use.bytes, tensor.nbytes);
    use.tensors += 1;
  }
  std::vector<TypeUse> types;
  types.reserve(by_type.size());
  for (const auto& [type, use] : by_type) {
    types.push_back(use);
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const TypeUse& a, const TypeUse& b) { return a.bytes > b.bytes; });
  return types;
}

class Picture {
 public:
  Picture(std::string_view title, const Inspection& inspection)
      : inspection_(inspection),
        types_(list_types(inspection)),
        tree_(make_module_tree(inspection.tensors)) {
    const std::string facts =
        fmt::format("{}, {}, {}", inspection.format,
                    count_text(inspection.tensors.size(), "tensor"), size_text(inspection.bytes));
    out_ = fmt::format(
        "{0} width=\"{1:.0f}\" height=\"{2:.0f}\" viewBox=\"0 0 {1:.0f} {2:.0f}\" role=\"img\">\n"
        "<title>{3}: {4}</title>\n<style>\n"
        "text{{font-family:'Segoe UI',Roboto,Helvetica,Arial,'DejaVu Sans',sans-serif;"
        "font-size:{5}px;fill:#1b2631}}\n"
        ".b{{stroke:#fff;stroke-width:.6}} .s{{stroke:#fff;stroke-width:.2}}\n"
        ".m{{fill:#34495e;fill-opacity:.07;stroke:#34495e;stroke-opacity:.55;stroke-width:.8}}\n"
        ".n{{pointer-events:none}} .h{{font-weight:600}} .q{{fill:#5d6d7e}} "
        ".more{{fill:#eceff1}}\n",
        kSvgStart, kWidth, kHeight, safe_name(title), xml_text(facts), kFontSize);
    for (std::size_t i = 0; i < types_.size(); ++i) {
      out_ += fmt::format(".t{}{{fill:{}}}\n", i, color_of(types_[i].type));
      type_numbers_.emplace(types_[i].type, i);
    }
    out_ += fmt::format(
        "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<text class=\"h\" x=\"{0}\" y=\"30\" style=\"font-size:18px\">{1}</text>\n"
        "<text class=\"q\" x=\"{0}\" y=\"49\" style=\"font-size:12.5px\">{2}</text>\n",
        kMargin, label_text(title, kMap.width, 19), xml_text(facts));
    add_legend();
  }

  std::string draw() {
    if (tree_.front().bytes == 0) {
      out_ += fmt::format(
          "<rect class=\"more\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n"
          "<text class=\"q\" x=\"{}\" y=\"{}\" text-anchor=\"middle\" "
          "style=\"font-size:16px\">{}</text>\n",
          kMap.x, kMap.y, kMap.width, kMap.height, kMap.x + kMap.width / 2,
          kMap.y + kMap.height / 2,
          inspection_.tensors.empty() ? "no tensors" : "no tensor has bytes");
    }
    for (const TreemapBox& box : lay_out_treemap(tree_, kMap)) {
      if (std::min(box.place.width, box.place.height) >= kMinDrawn) {
        add_box(box);
      }
    }
    return std::move(out_) + "</svg>\n";
  }

 private:
  void add_legend() {
    for (std::size_t i = 0; i < std::min(types_.size(), kLegendTypes); ++i) {
      // The last place stands for all others.
      const bool is_rest = i + 1 == kLegendTypes && types_.size() > kLegendTypes;
      const double x = kMargin + kLegendStep * static_cast<double>(i);
      out_ += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"60\" width=\"12\" height=\"12\"/>"
          "<text x=\"{}\" y=\"70\">{}</text>\n",
          is_rest ? "more" : fmt::format("t{}", i), x, x + 17,
          is_rest ? fmt::format("{} other types", types_.size() - i)
                  : fmt::format("{}: {}", xml_text(types_[i].type), size_text(types_[i].bytes)));
    }
  }

  void add_box(const TreemapBox& box) {
    const Rect& at = box.place;
    const std::string_view edge = std::min(at.width, at.height) < kThinEdgeSide ? "s" : "b";
    if (box.kind == BoxKind::kModule) {
      add_rect("m", at, tooltip(box));
    } else if (box.kind == BoxKind::kMore) {
      add_rect(fmt::format("more {}", edge), at, tooltip(box));
    } else {
      add_tile(box, edge);
    }
    if (box.kind == BoxKind::kModule ? box.has_header : at.height >= kLineHeight + 2) {
      add_label(box);
    }
  }

  // A nested SVG, which cuts text that is too long in the browser's font.
  void add_label(const TreemapBox& box) {
    const Rect& at = box.place;
    const bool is_module = box.kind == BoxKind::kModule;
    const double width = at.width - 2 * kLabelIndent;
    const double height = is_module ? kModuleHeader : at.height;
    const std::string name = box.kind == BoxKind::kMore ? fmt::format("{} more", box.count)
                                                        : std::string(tree_[box.node].label);
    const std::string label = label_text(
        name, width, is_module ? kFontSize * kBoldLetterWidth / kLetterWidth : kFontSize);
    if (!label.empty()) {
      out_ += fmt::format(
          "<svg class=\"n\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
          "height=\"{:.2f}\">{}</svg>\n",
          at.x, at.y, at.width, height,
          is_module ? header_text(label, shown(name).size(), box.bytes, width)
                    : tile_text(label, details(box), width, height));
    }
  }

  // A module's name, and its size if there is space for both.
  [[nodiscard]] static std::string header_text(const std::string& label, std::size_t letters,
                                               std::uint64_t bytes, double width) {
    const double taken = static_cast<double>(letters + 2) * kFontSize * kBoldLetterWidth;
    const std::string size = size_text(bytes);
    return fmt::format(
        "<text class=\"h\" x=\"{}\" y=\"{}\">{}{}</text>", kLabelIndent, kLineHeight - 1, label,
        label_text(size, width - taken) == size
            ? fmt::format("<tspan class=\"q\" font-weight=\"400\" dx=\"7\">{}</tspan>", size)
            : "");
  }

  [[nodiscard]] static std::string tile_text(const std::string& label,
                                             const std::vector<std::string>& details, double width,
                                             double height) {
    double y = kLineHeight - 1;
    std::string text = fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", kLabelIndent, y, label);
    for (const std::string& detail : details) {
      y += kLineHeight;
      const bool fits = y + kLabelIndent <= height && label_text(detail, width) == xml_text(detail);
      if (!fits) {
        break;
      }
      text += fmt::format("<text class=\"q\" x=\"{}\" y=\"{}\">{}</text>", kLabelIndent, y,
                          xml_text(detail));
    }
    return text;
  }

  // The second line of a box, below its name, if there is space.
  [[nodiscard]] std::vector<std::string> details(const TreemapBox& box) const {
    if (box.kind == BoxKind::kTensor) {
      return {size_text(box.bytes), shape_text(tensor_of(box).shape)};
    }
    return {size_text(box.bytes)};
  }

  [[nodiscard]] std::string tooltip(const TreemapBox& box) const {
    const std::string size =
        fmt::format("{}, {:.2f} %", size_text(box.bytes),
                    100 * static_cast<double>(box.bytes) / static_cast<double>(inspection_.bytes));
    switch (box.kind) {
      case BoxKind::kTensor: {
        const InspectedTensor& tensor = tensor_of(box);
        return fmt::format("{}\n{} {}\n{}", safe_name(tensor.name), xml_text(tensor.dtype),
                           xml_text(shape_text(tensor.shape)), size);
      }
      case BoxKind::kModule:
      case BoxKind::kClosed:
        return fmt::format("{}\n{}\n{}", safe_name(path_of(box.node)),
                           count_text(box.count, "tensor"), size);
      case BoxKind::kMore:
        return fmt::format("{} more{}{}\n{}", box.count, box.node == 0 ? "" : " in ",
                           safe_name(path_of(box.node)), size);
    }
    return {};
  }

  [[nodiscard]] const InspectedTensor& tensor_of(const TreemapBox& box) const {
    return inspection_.tensors[tree_[box.node].tensor];
  }

  // The full name of a module: the start of its first tensor's name, up to its own label.
  [[nodiscard]] std::string_view path_of(std::size_t node) const {
    const std::string_view label = tree_[node].label;
    if (label.empty()) {
      return {};
    }
    const std::string& name = inspection_.tensors[tree_[node].tensor].name;
    return {name.data(), static_cast<std::size_t>(label.data() + label.size() - name.data())};
  }

  // Bytes of each element type (numbers in types_) in a tensor or module.
  [[nodiscard]] std::vector<std::uint64_t> bytes_of_types(std::size_t node) const {
    std::vector<std::uint64_t> bytes(types_.size());
    std::vector<std::size_t> open{node};
    while (!open.empty()) {
      const ModuleNode& next = tree_[open.back()];
      open.pop_back();
      if (next.is_tensor()) {
        const InspectedTensor& tensor = inspection_.tensors[next.tensor];
        std::uint64_t& sum = bytes[type_numbers_.at(tensor.dtype)];
        sum = add_bytes(sum, tensor.nbytes);
      }
      open.insert(open.end(), next.children.begin(), next.children.end());
    }
    return bytes;
  }

  // A rectangle in the color of its element type; a closed module shows its types side by side.
  void add_tile(const TreemapBox& box, std::string_view edge) {
    const std::vector<std::uint64_t> bytes = bytes_of_types(box.node);
    const std::size_t types = bytes.size();
    const auto main =
        static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
    add_rect(fmt::format("t{} {}", main, edge), box.place, tooltip(box));
    double right = box.place.x + box.place.width;
    for (std::size_t i = 0; i < types; ++i) {
      const double part = static_cast<double>(bytes[i]) / static_cast<double>(box.bytes);
      const double width = box.place.width * part;
      if (i != main && width >= kMinDrawn) {
        right -= width;
        add_rect(fmt::format("t{} n", i), {right, box.place.y, width, box.place.height}, "");
      }
    }
  }

  void add_rect(std::string_view style, const Rect& at, const std::string& title) {
    out_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"", style,
        at.x, at.y, at.width, at.height);
    out_ += title.empty() ? "/>\n" : "><title>" + title + "</title></rect>\n";
  }

  const Inspection& inspection_;
  std::vector<TypeUse> types_;
  std::map<std::string_view, std::size_t> type_numbers_;
  std::vector<ModuleNode> tree_;
  std::string out_;
};

}  // namespace

std::string treemap_svg(std::string_view title, const Inspection& inspection) {
  return Picture(title, inspection).draw();
}

}  // namespace onnx_external
