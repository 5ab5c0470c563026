#include "common/difference_report.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/size_text.h"
#include "base/text.h"
#include "common/output.h"
#include "onnx_external/tensor.h"
#include "reports/json_text.h"

namespace onnx_external {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string section(std::string_view title, const Rows& rows) {
  if (rows.empty()) {
    return {};
  }
  std::string out = fmt::format("{}: {}\n", title, rows.size());
  Rows indented = rows;
  for (auto& row : indented) {
    row.front().insert(0, "  ");
  }
  return out + table_text(indented, {});
}

Rows rows_of(const std::vector<InspectedTensor>& tensors) {
  Rows rows;
  for (const InspectedTensor& tensor : tensors) {
    rows.push_back({shown(tensor.name), form_text(tensor), size_text(tensor.nbytes)});
  }
  return rows;
}

Rows rows_of(const std::vector<TensorPair>& pairs) {
  Rows rows;
  for (const TensorPair& pair : pairs) {
    rows.push_back({shown(pair.a.name), form_text(pair.a), size_text(pair.a.nbytes)});
  }
  return rows;
}

Rows form_rows(const std::vector<TensorPair>& pairs) {
  Rows rows;
  for (const TensorPair& pair : pairs) {
    rows.push_back({shown(pair.a.name), form_text(pair.a), "->", form_text(pair.b)});
  }
  return rows;
}

Document form_document(const InspectedTensor& tensor) {
  Document out{{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  if (tensor.scheme) {
    out["scheme"] = scheme_text(*tensor.scheme);
  }
  return out;
}

Document listed(const InspectedTensor& tensor) {
  Document out{{"name", tensor.name}};
  out.update(form_document(tensor));
  out["nbytes"] = tensor.nbytes;
  return out;
}

Document listed(const TensorPair& pair) {
  return listed(pair.a);
}

template <typename Items>
Document list_of(const Items& items) {
  Document list = Document::array();
  for (const auto& item : items) {
    list.push_back(listed(item));
  }
  return list;
}

}  // namespace

std::string difference_text(const Difference& difference, const std::string& a,
                            const std::string& b, CompareBytes compared) {
  const std::size_t count = difference.only_a.size() + difference.only_b.size() +
                            difference.forms.size() + difference.bytes.size() +
                            difference.unreadable.size();
  const std::string same = count_text(difference.equal, "tensor") +
                           (compared == CompareBytes::kYes ? " equal" : " alike, no byte was read");
  return section("only in " + shown(a), rows_of(difference.only_a)) +
         section("only in " + shown(b), rows_of(difference.only_b)) +
         section("other type or shape", form_rows(difference.forms)) +
         section("other bytes", rows_of(difference.bytes)) +
         section("bytes not comparable", rows_of(difference.unreadable)) +
         fmt::format("{} and {}: {}, {}\n", shown(a), shown(b),
                     count > 0                        ? count_text(count, "difference")
                     : compared == CompareBytes::kYes ? "no difference"
                                                      : "no difference in names, types and shapes",
                     same);
}

std::string difference_document(const Difference& difference, CompareBytes compared) {
  Document forms = Document::array();
  for (const TensorPair& pair : difference.forms) {
    forms.push_back(
        {{"name", pair.a.name}, {"a", form_document(pair.a)}, {"b", form_document(pair.b)}});
  }
  return document_text({{"equal", difference.none()},
                        {"compared_bytes", compared == CompareBytes::kYes},
                        {"only_a", list_of(difference.only_a)},
                        {"only_b", list_of(difference.only_b)},
                        {"forms", forms},
                        {"bytes", list_of(difference.bytes)},
                        {"unreadable", list_of(difference.unreadable)},
                        {"equal_tensors", difference.equal},
                        {"bytes_read", difference.bytes_read}});
}

}  // namespace onnx_external
