#include "reports/remark_text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "base/text.h"

namespace onnx_external {
namespace {

struct Row {
  std::string_view name;
  std::string_view message;
};

// In the order of the enum.
constexpr std::array<Row, kDataRemarks> kRows{{
    {"no-length",
     "no length in external_data: some readers take the rest of the file, or refuse the model; "
     "save it anew with save-external"},
    {"zero-length",
     "length 0 in external_data: ONNX Runtime takes the length from type and dims, but onnx reads "
     "no bytes; save it anew with save-external"},
    {"prepacked",
     "keys prepacked_N in external_data: weights that ONNX Runtime has packed for itself, which "
     "were not checked; onnx ignores them, and save-external leaves them out"},
    {"basepath",
     "basepath in external_data: onnx ignores it, but ONNX Runtime refuses the model; save it anew "
     "with save-external, which leaves it out"},
    {"twin-keys",
     "a key twice in external_data, with the same value: ONNX Runtime refuses the model if it is "
     "the location; save it anew with save-external"},
    {"other-checksum",
     "the checksum in external_data is not a SHA-1, so nothing was checked with it"},
    {"dots",
     "\"..\" in the name of the data file: onnx refuses it; save it anew with save-external"},
    {"hard-links",
     "the data file has several names (hard links): onnx refuses it; save it anew with "
     "save-external, or copy it: cp FILE FILE.new && mv FILE.new FILE"},
    {"hub-link",
     "the data file is a link of the Hub's cache: onnx refuses it; save the model with "
     "save-external, or copy its folder with cp -rL"},
}};

const Row& row_of(DataRemark remark) {
  return kRows[static_cast<std::size_t>(remark)];
}

std::string tensors_text(const CountedRemark& counted) {
  const std::string first = quote(counted.first);
  return counted.tensors == 1 ? first : fmt::format("{} and {} more", first, counted.tensors - 1);
}

}  // namespace

std::string_view remark_name(DataRemark remark) {
  return row_of(remark).name;
}

std::string_view remark_message(DataRemark remark) {
  return row_of(remark).message;
}

std::string remarks_text(std::span<const CountedRemark> remarks) {
  std::string out;
  for (const CountedRemark& counted : remarks) {
    out += fmt::format("warning: {}: {}\n", tensors_text(counted), remark_message(counted.remark));
  }
  return out;
}

std::string left_out_text(std::span<const CountedRemark> remarks) {
  std::string out;
  for (const CountedRemark& counted : remarks) {
    if (counted.remark == DataRemark::kPrepacked) {
      out += fmt::format("left out: what ONNX Runtime had prepacked for {}; it packs them again\n",
                         tensors_text(counted));
    } else if (counted.remark == DataRemark::kBasepath) {
      out += fmt::format("left out: basepath in external_data of {}\n", tensors_text(counted));
    }
  }
  return out;
}

}  // namespace onnx_external
