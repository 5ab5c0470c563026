#include "common/quantize_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/size_text.h"
#include "base/text.h"
#include "common/output.h"

namespace onnx_external {
namespace {

// "8.79 %"; "-" if it is not known.
std::string error_text(const std::optional<double>& error) {
  return error ? fmt::format("{:.2f} %", 100 * *error) : "-";
}

// The matrices with one scheme.
struct SchemeTotals {
  std::size_t matrices = 0;
  std::uint64_t before = 0;
  std::uint64_t bytes = 0;
  std::uint64_t weights = 0;
  const SavedMatrix* worst = nullptr;  // of those whose error is known
};

std::string totals_text(const std::string& scheme, const SchemeTotals& totals) {
  std::string text = fmt::format(
      "quantized: {} from {} to {}, {:.2f} bits a weight: {}",
      totals.matrices == 1 ? "1 matrix" : fmt::format("{} matrices", totals.matrices),
      size_text(totals.before), size_text(totals.bytes),
      8.0 * static_cast<double>(totals.bytes) / static_cast<double>(totals.weights), scheme);
  if (totals.worst != nullptr) {
    text += fmt::format("; relative error at most {} ({})", error_text(totals.worst->error),
                        shown(totals.worst->weight));
  }
  return text + "\n";
}

// The weights with one reason.
struct ReasonTotals {
  std::uint64_t bytes = 0;
  std::vector<std::string> names;
};

std::string listed_text(std::string_view what, std::string_view reason, const ReasonTotals& totals,
                        Lists lists) {
  const std::size_t most =
      lists == Lists::kFull ? totals.names.size() : std::min<std::size_t>(2, totals.names.size());
  std::string text =
      fmt::format("{}: {}, {}, as {}: ", what, count_text(totals.names.size(), "weight"),
                  size_text(totals.bytes), reason);
  for (std::size_t i = 0; i < most; ++i) {
    text += (i == 0 ? "" : ", ") + totals.names[i];
  }
  return text + (most < totals.names.size() ? ", ..." : "") + "\n";
}

}  // namespace

std::string matrices_text(const SavedModel& model) {
  if (model.quantized.empty()) {
    return "";
  }
  std::vector<std::vector<std::string>> rows{
      {"matrix", "key", "role", "shape", "scheme", "before", "after", "error"}};
  for (const SavedMatrix& matrix : model.quantized) {
    rows.push_back({shown(matrix.weight), matrix.key.empty() ? "-" : shown(matrix.key), matrix.role,
                    fmt::format("{} x {}", matrix.rows, matrix.columns), scheme_text(matrix.scheme),
                    size_text(matrix.bytes_before), size_text(matrix.bytes),
                    error_text(matrix.error)});
  }
  return table_text(rows, {5, 6, 7});
}

std::string quantized_text(const SavedModel& model, Lists lists) {
  std::vector<std::pair<std::string, SchemeTotals>> schemes;  // in the order of the graph
  for (const SavedMatrix& matrix : model.quantized) {
    const std::string scheme = scheme_text(matrix.scheme);
    auto found = std::find_if(schemes.begin(), schemes.end(),
                              [&](const auto& known) { return known.first == scheme; });
    if (found == schemes.end()) {
      found = schemes.insert(schemes.end(), {scheme, {}});
    }
    SchemeTotals& totals = found->second;
    ++totals.matrices;
    totals.before += matrix.bytes_before;
    totals.bytes += matrix.bytes;
    totals.weights += matrix.rows * matrix.columns;
    if (matrix.error && (totals.worst == nullptr || *matrix.error > *totals.worst->error)) {
      totals.worst = &matrix;
    }
  }
  std::string text;
  for (const auto& [scheme, totals] : schemes) {
    text += totals_text(scheme, totals);
  }
  std::map<std::string_view, ReasonTotals> reasons;
  for (const FloatWeight& weight : model.floats) {
    ReasonTotals& totals = reasons[weight.reason];
    totals.bytes += weight.bytes;
    totals.names.push_back(shown(weight.weight));
  }
  std::map<std::string_view, ReasonTotals> unkept;
  for (const SavedMatrix& matrix : model.quantized) {
    if (!matrix.unkept.empty()) {
      ReasonTotals& totals = unkept[matrix.unkept];
      totals.bytes += matrix.bytes;
      totals.names.push_back(shown(matrix.weight));
    }
  }
  for (const auto& [reason, totals] : unkept) {
    text += listed_text("quantized anew", reason, totals, lists);
  }
  for (const auto& [reason, totals] : reasons) {
    text += listed_text("in float", reason, totals, lists);
  }
  return text;
}

}  // namespace onnx_external
