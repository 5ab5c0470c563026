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
     "external_data has no length: some readers use the rest of the file, others reject the model; "
     "save it again with save-external"},
    {"zero-length",
     "external_data has length 0: ONNX Runtime computes the length from type and dims, but onnx "
     "reads no bytes; save the model again with save-external"},
    {"prepacked",
     "external_data has prepacked_N keys: these weights, which ONNX Runtime packed for its own "
     "use, were not checked; onnx ignores them, and save-external leaves them out"},
    {"basepath",
     "external_data has a basepath: onnx ignores it, but ONNX Runtime rejects the model; save the "
     "model again with save-external, which leaves the basepath out"},
    {"twin-keys",
     "external_data has a key twice, with the same value: ONNX Runtime rejects the model if that "
     "key is the location; save the model again with save-external"},
    {"other-checksum", "the checksum in external_data is not a SHA-1, so it was not checked"},
    {"dots",
     "the name of the data file contains \"..\": onnx rejects it; save the model again with "
     "save-external"},
    {"hard-links",
     "the data file has several names (hard links): onnx rejects it; save the model again with "
     "save-external, or copy the file: cp FILE FILE.new && mv FILE.new FILE"},
    {"hub-link",
     "the data file is a link in the Hugging Face cache: onnx rejects it; save the model with "
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
      out += fmt::format(
          "left out: weights that ONNX Runtime had prepacked for {}; it packs them again\n",
          tensors_text(counted));
    } else if (counted.remark == DataRemark::kBasepath) {
      out += fmt::format("left out: basepath in external_data of {}\n", tensors_text(counted));
    }
  }
  return out;
}

}  // namespace onnx_external
