// AWQ's layouts: "gemm", whose words hold codes of eight rows in an order of their own, and "gemv",
// whose words hold codes along K. Quark's int4 and uint4 weights are packed as the first, or in
// plain order.
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kAwqBits = 4;
constexpr std::uint32_t kAwqPerWord = 8;

constexpr std::uint8_t kSignOfNibble = 8;

struct AwqParts {
  std::string module;
  const TensorView* codes = nullptr;
  const TensorView* zeros = nullptr;
  const TensorView* scales = nullptr;
  std::string method = "AWQ";
  bool is_signed = false;
  bool is_plain = false;  // the first row of a word is in its lowest bits
};

std::optional<std::int64_t> awq_group(const QuantSettings& settings, const std::string& module) {
  const auto group = number_for(settings, module, "group_size");
  if (group) {
    return group;
  }
  const Json* const quark = settings.config.find("global_quant_config");
  const Json* const weight = quark == nullptr ? nullptr : quark->find("weight");
  const auto own = json_integer(weight == nullptr ? nullptr : weight->find("group_size"));
  return own ? own : number_for(settings, module, "q_group_size");
}

bool is_gemm(const AwqParts& parts) {
  const std::uint64_t rows = dim(*parts.scales, 1);
  return dim(*parts.codes, 1) * kAwqPerWord == rows &&
         (parts.zeros == nullptr || (dim(*parts.zeros, 1) * kAwqPerWord == rows &&
                                     dim(*parts.zeros, 0) == dim(*parts.scales, 0)));
}

bool is_gemv(const AwqParts& parts) {
  return dim(*parts.codes, 0) == dim(*parts.scales, 0) &&
         dim(*parts.zeros, 0) == dim(*parts.scales, 0) &&
         dim(*parts.scales, 1) == dim(*parts.zeros, 1) * kAwqPerWord;
}

// Eight rows share a word; in AWQ's order, the even ones are in its lower half.
PackedCodes codes_of_eight_rows(const MatrixFinder& finder, const AwqParts& parts,
                                const TensorView& words) {
  PackedCodes codes;
  codes.stored = finder.stored(transposed_view(words));
  codes.packing.bits = kAwqBits;
  codes.packing.word_bytes = sizeof(std::int32_t);
  codes.packing.axis = CodeAxis::kRows;
  codes.packing.cycle_bits = kAwqPerWord * kAwqBits;
  codes.packing.shifts = {0, 16, 4, 20, 8, 24, 12, 28};
  if (parts.is_plain) {
    codes.packing.shifts = {0, 4, 8, 12, 16, 20, 24, 28};
  }
  codes.packing.flip = parts.is_signed ? kSignOfNibble : 0;
  codes.rows = dim(words, 1) * kAwqPerWord;
  codes.columns = dim(words, 0);
  codes.line_bytes = codes.columns * sizeof(std::int32_t);
  return codes;
}

Status add_gemm(MatrixFinder& finder, const AwqParts& parts) {
  QuantizedMatrix matrix;
  matrix.method = parts.method;
  matrix.name = weight_name(parts.module);
  matrix.codes = codes_of_eight_rows(finder, parts, *parts.codes);
  matrix.rows = matrix.codes.rows;
  matrix.columns = matrix.codes.columns;
  TRY(set_groups(matrix, dim(*parts.scales, 0), awq_group(finder.settings(), parts.module),
                 *parts.scales));
  matrix.scales.stored = finder.stored(transposed_view(*parts.scales));
  matrix.scales.rows = matrix.rows;
  matrix.scales.columns = matrix.groups;
  matrix.scales.count = matrix.rows * matrix.groups;
  matrix.zero = kSignOfNibble;
  if (parts.zeros != nullptr) {
    matrix.zero_codes = codes_of_eight_rows(finder, parts, *parts.zeros);
  }
  return finder.add(std::move(matrix), parts.module,
                    {"qweight", "qzeros", "scales", "weight", "weight_scale", "weight_zero_point",
                     "input_scale"});
}

TensorView first_columns(TensorView view, std::uint64_t columns) {
  view.shape[1] = static_cast<std::int64_t>(columns);
  return view;
}

Status add_gemv(MatrixFinder& finder, const AwqParts& parts) {
  const auto group = awq_group(finder.settings(), parts.module);
  QuantizedMatrix matrix;
  matrix.method = "AWQ";
  matrix.name = weight_name(parts.module);
  matrix.rows = dim(*parts.codes, 0);
  matrix.columns = dim(*parts.codes, 1) * kAwqPerWord;
  if (!group || *group < 1) {
    return fail(ErrorCode::kAmbiguous, quote(parts.scales->name) +
                                           " has padded rows, and its group size is not known; "
                                           "pass the folder, whose config states the group size");
  }
  const auto size = static_cast<std::uint64_t>(*group);
  const std::uint64_t groups = matrix.columns / size + (matrix.columns % size == 0 ? 0 : 1);
  if (groups > dim(*parts.scales, 1)) {
    return do_not_fit(*parts.codes, *parts.scales);
  }
  const TensorView scales = first_columns(*parts.scales, groups);
  TRY(set_scale_table(finder, matrix, scales, {1, group}));
  matrix.codes = codes_in_rows(finder, matrix, *parts.codes, kAwqBits);
  QuantizedMatrix zeros = matrix;
  zeros.columns = groups;
  const TensorView points = first_columns(*parts.zeros, (groups + kAwqPerWord - 1) / kAwqPerWord);
  matrix.zero_codes = codes_in_rows(finder, zeros, points, kAwqBits);
  return finder.add(std::move(matrix), parts.module, {"qweight", "qzeros", "scales"});
}

bool are_words(const TensorView* view) {
  return has_rank(view, 2) && view->dtype == DType::kInt32;
}

const std::string* text_at(const Json& config, std::string_view part, std::string_view inner,
                           std::string_view key) {
  const Json* const object = config.find(part);
  const Json* const found = object == nullptr || inner.empty() ? object : object->find(inner);
  return found == nullptr ? nullptr : found->get<std::string>(key);
}

// The type of all weights; null if layers have different ones, or nothing says it.
const std::string* quark_type(const Json& config) {
  const std::string* type = text_at(config, "global_quant_config", "weight", "dtype");
  for (const std::string_view place : {"layer_type_quant_config", "layer_quant_config"}) {
    const Json* const layers = config.find(place);
    const JsonObject* const all = layers == nullptr ? nullptr : layers->object();
    for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
      const std::string* const own = text_at((*all)[i].second, "weight", "", "dtype");
      if (own != nullptr && type != nullptr && *own != *type) {
        return nullptr;
      }
      type = type == nullptr ? own : type;
    }
  }
  return type;
}

Status find_quark(MatrixFinder& finder) {
  const Json& config = finder.settings().config;
  const std::string* const type = quark_type(config);
  const std::string* const order = text_at(config, "export", "", "pack_method");
  if (type == nullptr) {
    return {};  // whether codes have signs is not known
  }
  for (const std::string& module : finder.modules_with("weight_scale")) {
    AwqParts parts{module, finder.find(module, "weight"), finder.find(module, "weight_zero_point"),
                   finder.find(module, "weight_scale"), "Quark"};
    parts.is_signed = *type == "int4";
    parts.is_plain = order != nullptr && *order == "order";
    const bool has_zeros = parts.zeros == nullptr || are_words(parts.zeros);
    if (are_words(parts.codes) && has_zeros && has_rank(parts.scales, 2) && is_gemm(parts)) {
      TRY(finder.accept(add_gemm(finder, parts)));
    }
  }
  return {};
}

}  // namespace

Status find_awq(MatrixFinder& finder) {
  TRY(find_quark(finder));
  if (finder.settings().method == "gptq") {
    return {};
  }
  for (const std::string& module : finder.modules_with("qweight")) {
    const AwqParts parts{module, finder.find(module, "qweight"), finder.find(module, "qzeros"),
                         finder.find(module, "scales")};
    if (!are_words(parts.codes) || !are_words(parts.zeros) || !has_rank(parts.scales, 2)) {
      continue;
    }
    if (is_gemm(parts)) {
      TRY(finder.accept(add_gemm(finder, parts)));
    } else if (is_gemv(parts)) {
      TRY(finder.accept(add_gemv(finder, parts)));
    }
  }
  return {};
}

}  // namespace onnx_external
