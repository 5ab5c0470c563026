#include "reports/page.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/remedy.h"
#include "inspect/inspect.h"
#include "reports/documents.h"
#include "reports/json_text.h"
#include "reports/page_template.h"

namespace onnx_external {
namespace {

// Every page begins with this text, and other files do not.
constexpr std::string_view kPageStart = "<!DOCTYPE html>\n<!-- A report of onnx-external. -->\n";
constexpr std::string_view kPlace = "REPORT</script>";  // where the report goes

// Lists of more elements are cut; those of fewer share their room, as members of an object do.
constexpr std::size_t kFewElements = 64;

// Returns JSON in which no text can end a script element or begin a comment. These characters occur
// only in strings.
std::string embeddable(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Returns the length of the value in a page.
std::size_t length_of(const Document& value) {
  constexpr std::size_t kSigns = 2;  // a colon, a comma, brackets
  if (!value.is_structured()) {
    return embeddable(compact(value)).size() + kSigns;
  }
  std::size_t length = kSigns;
  for (const auto& [key, member] : value.items()) {
    length += length_of(member) + (value.is_object() ? embeddable(compact(key)).size() : 0);
  }
  return length;
}

std::string_view text_of(const Document& item, const char* key) {
  const auto found = item.find(key);
  return found != item.end() && found->is_string()
             ? std::string_view(found->get_ref<const std::string&>())
             : std::string_view();
}

// Applies the same rule as page.html.
bool is_wrong(const Document& item) {
  const std::string_view status = text_of(item, "status");
  const auto ok = item.find("ok");
  return !text_of(item, "code").empty() || !text_of(item, "problem").empty() ||
         status.find("DISC") != std::string_view::npos ||
         status.find("FAIL") != std::string_view::npos || (ok != item.end() && *ok == false);
}

std::uint64_t bytes_of(const Document& item) {
  for (const char* key : {"nbytes", "length"}) {
    if (const auto found = item.find(key); found != item.end() && found->is_number_unsigned()) {
      return found->get<std::uint64_t>();
    }
  }
  return 0;
}

// Makes a document fit into a page, and notes what it leaves out.
class PageCutter {
 public:
  void fit(Document& value, std::size_t room, const std::string& name) {
    if (length_of(value) <= room) {
      return;
    }
    if (value.is_array() && value.size() > kFewElements) {
      keep_most_important(value, room, name);
    } else if (value.is_structured()) {
      share(value, room, name);
    } else {
      value = "(not on this page)";
    }
  }

  [[nodiscard]] const Document& left_out() const { return left_out_; }

 private:
  // Small members are kept whole; large ones get what these leave, in equal shares.
  void share(Document& value, std::size_t room, const std::string& name) {
    struct Member {
      std::size_t length;
      std::string name;
      Document* value;
    };
    std::vector<Member> members;
    for (auto item = value.begin(); item != value.end(); ++item) {
      members.push_back({length_of(*item), value.is_object() ? item.key() : name, &*item});
    }
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.length < b.length; });
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::size_t part = room / (members.size() - i);
      fit(*members[i].value, part, members[i].name);
      room -= std::min(members[i].length, part);
    }
  }

  void keep_most_important(Document& list, std::size_t room, const std::string& name) {
    struct Element {
      bool is_wrong;
      std::uint64_t bytes;
      std::size_t place;
    };
    std::vector<Element> order;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool is_object = list[i].is_object();
      order.push_back({is_object && is_wrong(list[i]), is_object ? bytes_of(list[i]) : 0, i});
    }
    std::stable_sort(order.begin(), order.end(), [](const Element& a, const Element& b) {
      return std::pair(a.is_wrong, a.bytes) > std::pair(b.is_wrong, b.bytes);
    });
    std::vector<bool> kept(list.size());
    std::size_t count = 0;
    double bytes = 0;  // 2^64 and more can be declared
    for (const Element& element : order) {
      const std::size_t length = length_of(list[element.place]);
      kept[element.place] = length <= room;
      if (kept[element.place]) {
        room -= length;
      } else {
        count += 1;
        bytes += static_cast<double>(element.bytes);
      }
    }
    Document rest = Document::array();
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (kept[i]) {
        rest.push_back(std::move(list[i]));
      }
    }
    list = std::move(rest);
    left_out_.push_back({{"list", name}, {"count", count}, {"bytes", bytes}});
  }

  Document left_out_ = Document::array();
};

std::string embedded(std::string_view title, std::string_view document, std::size_t most) {
  std::string report = embeddable(document);
  Document left_out = Document::array();
  if (report.size() > most) {
    Document value = Document::parse(document, nullptr, false);
    PageCutter cutter;
    cutter.fit(value, most, "report");
    report = embeddable(compact(value));
    left_out = cutter.left_out();
  }
  return "{\"title\": " + embeddable(compact(Document(title))) +
         ", \"left_out\": " + embeddable(compact(left_out)) + ", \"report\": " + report + "}";
}

}  // namespace

std::string html_page(std::string_view title, std::string_view document, std::size_t most) {
  const std::size_t place = kPageTemplate.find(kPlace);
  std::string page(kPageTemplate.substr(0, place));
  page += embedded(title, document, most);
  page += kPageTemplate.substr(place + kPlace.find('<'));
  return page;
}

std::string verify_page(std::string_view title, std::string_view document,
                        std::span<const std::filesystem::path> models) {
  Document report = Document::parse(document, nullptr, false);
  const bool alone = models.size() == 1;
  if (!alone && report["models"].size() != models.size()) {
    return html_page(title, document);
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (const auto found = inspect({&models[i], 1})) {
      Document& of_model = alone ? report : report["models"][i];
      of_model["contents"] = std::move(Document::parse(inspect_document(*found))["tensors"]);
    }
  }
  return html_page(title, compact(report));
}

Status check_page(const std::filesystem::path& path, Overwrite overwrite) {
  if (path.empty()) {
    return {};
  }
  if (const auto folder = Directory::open(path.parent_path()); !folder) {
    return fail(folder.error());
  }
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return {};
  }
  if (overwrite == Overwrite::kRefuse) {
    return fail_with(ErrorCode::kAlreadyExists, path.string() + ": exists",
                     {{RemedyOption::kOverwrite, "", "replaces it"}});
  }
  std::array<char, kPageStart.size()> start{};
  const auto file = SourceFile::open(path);
  const bool is_page = file && (*file)->size() >= start.size() &&
                       (*file)->read(0, std::as_writable_bytes(std::span(start))) &&
                       std::string_view(start.data(), start.size()) == kPageStart;
  return is_page ? Status()
                 : fail(ErrorCode::kAlreadyExists,
                        path.string() + ": exists, and was not written by onnx-external");
}

Status write_page(const std::filesystem::path& path, std::string_view page, Overwrite overwrite) {
  return write_whole_file(path, page,
                          overwrite == Overwrite::kAllow ? Replace::kYes : Replace::kNo);
}

}  // namespace onnx_external
