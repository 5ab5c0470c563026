// HQQ and quanto: weights are reshaped into groups first, and codes of distant groups share a byte.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/hqq_numbers.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/number_reader.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

// --- HQQ ---------------------------------------------------------------------------------------

struct HqqPacking {
  std::string_view name;
  std::uint32_t bits;
  std::uint32_t word_bytes;
  std::vector<std::uint32_t> shifts;  // of the parts of the first axis
};

const std::vector<HqqPacking>& hqq_packings() {
  static const std::vector<HqqPacking> kAll = {
      {"8bit_u8", 8, 1, {0}},
      {"4bit_u8", 4, 1, {4, 0}},
      {"3bit_32", 3, 4, {27, 24, 21, 18, 15, 12, 9, 6, 3, 0}},
      {"2bit_u8", 2, 1, {6, 4, 2, 0}},
      {"1bit_u8", 1, 1, {7, 6, 5, 4, 3, 2, 1, 0}},
  };
  return kAll;
}

tl::unexpected<Error> has_no_number(const std::string& module, const std::string& component) {
  return corrupt("HQQ weight " + quote(module) + ": has no number " + quote(component));
}

Result<std::string> stored_text(const MatrixFinder& finder, const std::string& module,
                                std::string_view component) {
  constexpr std::uint64_t kMostBytes = 64;
  const TensorView* const view = finder.find(module, component);
  const auto bytes = view == nullptr ? 0 : contiguous_nbytes(view->dtype, view->shape).value_or(0);
  if (bytes == 0 || bytes > kMostBytes || view->dtype != DType::kUInt8) {
    return corrupt("HQQ weight " + quote(module) + ": has no text " +
                   quote(std::string(component)));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  TRY(finder.stored(*view).read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Returns whether a flag, which is stored as a byte, is set.
Result<bool> is_set(const MatrixFinder& finder, const std::string& module,
                    std::string_view component) {
  const TensorView* const view = finder.find(module, component);
  if (view == nullptr || element_count(view->shape).value_or(0) != 1 ||
      byte_size(view->dtype) != 1) {
    return false;
  }
  std::byte flag{};
  TRY(finder.stored(*view).read(0, std::span(&flag, 1)));
  return flag != std::byte{0};
}

struct HqqFacts {
  const HqqPacking* packing = nullptr;
  std::uint64_t group = 0;
  bool along_rows = false;  // axis 0: groups run across the rows of the weight
};

Result<HqqFacts> hqq_facts(const MatrixFinder& finder, const std::string& module) {
  HqqFacts facts;
  TRY_ASSIGN(const auto name, stored_text(finder, module, "packing"));
  for (const HqqPacking& packing : hqq_packings()) {
    facts.packing = packing.name == name ? &packing : facts.packing;
  }
  if (facts.packing == nullptr) {
    return unsupported("HQQ weight " + quote(module) + ": is packed as " + quote(name) +
                       ", which is not supported");
  }
  for (const std::string part : {"scale", "zero"}) {
    TRY_ASSIGN(const auto set, is_set(finder, module, "quant_" + part));
    if (set && finder.find(module, part + "_q") == nullptr) {
      return unsupported("HQQ weight " + quote(module) +
                         ": its scales or zero points are quantized themselves, but it has no " +
                         quote(part + "_q"));
    }
  }
  TRY_ASSIGN(const auto axis, hqq_axis(finder, module, "axis"));
  TRY_ASSIGN(const auto group, hqq_integer(finder, module, "group_size"));
  if (!axis || (!group && finder.find(module, "group_size") != nullptr)) {
    return has_no_number(module, axis ? "group_size" : "axis");
  }
  facts.along_rows = *axis == 0;
  facts.group = group && *group > 0 ? static_cast<std::uint64_t>(*group) : 0;
  return facts;
}

// Codes whose words hold rows of several parts of the first axis.
PackedCodes codes_in_parts(const MatrixFinder& finder, const TensorView& words, std::uint32_t bits,
                           std::uint32_t word_bytes, std::vector<std::uint32_t> shifts) {
  PackedCodes codes;
  codes.stored = finder.stored(words);
  codes.packing.bits = bits;
  codes.packing.word_bytes = word_bytes;
  codes.packing.axis = CodeAxis::kRows;
  codes.packing.cycle_bits = word_bytes * 8;
  codes.packing.parts = shifts.size();
  codes.packing.part = dim(words, 0);
  codes.packing.shifts = std::move(shifts);
  codes.columns = dim(words, 1) * byte_size(words.dtype) / word_bytes;
  codes.line_bytes = codes.columns * word_bytes;
  return codes;
}

// Scales of groups that follow each other in the row-major order of the weight (axis 1), or of
// which each row of codes has one element (axis 0).
Status set_flat_groups(QuantizedMatrix& matrix, const StoredTensor& scales, std::uint64_t group,
                       bool along_rows) {
  matrix.scales.stored = scales;
  TRY_ASSIGN(matrix.scales.count, element_count(scales.view.shape));
  matrix.group = along_rows ? 1 : std::gcd(group, matrix.columns);
  matrix.groups = matrix.columns / matrix.group;
  matrix.scales.place = along_rows ? GroupPlace::kCycle : GroupPlace::kFlat;
  matrix.scales.block = along_rows ? matrix.scales.count : group;
  return {};
}

Status add_hqq(MatrixFinder& finder, const std::string& module) {
  TRY_ASSIGN(const auto facts, hqq_facts(finder, module));
  const TensorView* const words = finder.find(module, "W_q");
  const TensorView* const shape = finder.find(module, "shape");
  TRY_ASSIGN(const auto scales, hqq_numbers(finder, module, "scale"));
  TRY_ASSIGN(const auto zeros, hqq_numbers(finder, module, "zero"));
  if (!has_rank(words, 2) || shape == nullptr || !scales || !zeros || shape->shape != Shape{2} ||
      byte_size(shape->dtype) != sizeof(std::int64_t)) {
    return corrupt("HQQ weight " + quote(module) + ": its W_q, shape, scale or zero is missing");
  }
  TRY_ASSIGN(const auto dims, read_integers(finder.stored(*shape), 2));
  const auto elements = dims[0] > 0 && dims[1] > 0 ? checked_mul(dims[0], dims[1]) : std::nullopt;
  if (!elements) {
    return corrupt(quote(shape->name) + ": is not the shape of a matrix");
  }
  QuantizedMatrix matrix;
  matrix.method = "HQQ";
  matrix.name = weight_name(module);
  matrix.rows = static_cast<std::uint64_t>(dims[0]);
  matrix.columns = static_cast<std::uint64_t>(dims[1]);
  const HqqPacking& packing = *facts.packing;
  matrix.codes = codes_in_parts(finder, *words, packing.bits, packing.word_bytes, packing.shifts);
  if (matrix.codes.columns == 0) {
    return do_not_fit(*words, *shape);
  }
  matrix.codes.rows = static_cast<std::uint64_t>(*elements) / matrix.codes.columns;
  const std::uint64_t whole = facts.along_rows ? matrix.codes.rows : matrix.codes.columns;
  if (facts.group != 0 && facts.group != whole) {
    return do_not_fit(*words, scales->view);
  }
  TRY(set_flat_groups(matrix, *scales, matrix.codes.columns, facts.along_rows));
  if (facts.along_rows && matrix.scales.count != matrix.codes.columns) {
    return do_not_fit(*words, scales->view);
  }
  matrix.zeros = matrix.scales;
  matrix.zeros->stored = *zeros;
  return finder.add(std::move(matrix), module,
                    {"W_q",
                     "shape",
                     "axis",
                     "group_size",
                     "nbits",
                     "scale",
                     "zero",
                     "channel_wise",
                     "compute_dtype",
                     "encoded_state_dict",
                     "offload_meta",
                     "optimize",
                     "packing",
                     "quant_scale",
                     "quant_zero",
                     "scale_q",
                     "zero_q",
                     "meta_scale.scale",
                     "meta_scale.zero",
                     "meta_scale.axis",
                     "meta_zero.scale",
                     "meta_zero.zero",
                     "meta_zero.axis",
                     "round_zero",
                     "stores_quant_config",
                     "unpack_view_dtype",
                     "view_as_float"});
}

// --- quanto ------------------------------------------------------------------------------------

// Modules whose weight has as many rows as the model is wide, and those that have as many columns.
constexpr std::array<std::string_view, 11> kBackToHidden = {
    "o_proj",        "down_proj", "out_proj", "fc2",    "wo", "w2",
    "dense_4h_to_h", "c_proj",    "wo_proj",  "fc_out", "o"};
constexpr std::array<std::string_view, 32> kFromHidden = {"q",         "k",
                                                          "v",         "q_proj",
                                                          "k_proj",    "v_proj",
                                                          "qkv_proj",  "query_key_value",
                                                          "query",     "key",
                                                          "value",     "Wqkv",
                                                          "wqkv",      "c_attn",
                                                          "c_fc",      "gate_proj",
                                                          "up_proj",   "gate_up_proj",
                                                          "fc1",       "fc_in",
                                                          "w1",        "w3",
                                                          "wi",        "wi_0",
                                                          "wi_1",      "in_proj",
                                                          "gate",      "dense_h_to_4h",
                                                          "lm_head",   "embed_tokens",
                                                          "embed_out", "score"};

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::uint64_t hidden_size(const Json& config) {
  for (const std::string_view part : {"", "text_config", "llm_config", "language_config"}) {
    const Json* const object = part.empty() ? &config : config.find(part);
    for (const std::string_view key : {"hidden_size", "d_model", "n_embd", "dim"}) {
      const auto size = json_integer(object == nullptr ? nullptr : object->find(key));
      if (size && *size > 0) {
        return static_cast<std::uint64_t>(*size);
      }
    }
  }
  return 0;
}

// The rows of a weight: those of its bias, or by the model's width, if the module's name says which
// side that is: the other shape has as many elements. quanto does not store them.
Result<std::uint64_t> quanto_rows(const MatrixFinder& finder, const std::string& module,
                                  std::uint64_t elements) {
  if (const TensorView* const bias = finder.find(module, "bias"); has_rank(bias, 1)) {
    return dim(*bias, 0);
  }
  const std::uint64_t hidden = hidden_size(finder.settings().model);
  if (hidden == 0 || elements % hidden != 0) {
    return fail(ErrorCode::kUnsupported, "quanto weight " + quote(module) +
                                             ": quanto does not store its shape; pass the folder, "
                                             "whose config.json states the width of the model");
  }
  const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
  const std::uint64_t others = elements / hidden;
  if (others != hidden && !is_among(kBackToHidden, last) && !is_among(kFromHidden, last)) {
    return unsupported("quanto weight " + quote(module) +
                       fmt::format(": quanto does not store its shape, which may be {} x {} or {} "
                                   "x {}; save the model in another format",
                                   hidden, others, others, hidden));
  }
  return is_among(kBackToHidden, last) ? hidden : others;
}

// The bits of codes that have `groups` scales and lie in so many rows of bytes. Bytes hold two or
// four groups, so only in a single row the config is needed.
Result<std::uint32_t> quanto_bits(const MatrixFinder& finder, const std::string& module,
                                  std::uint64_t groups, std::uint64_t rows) {
  if (groups > 2 * rows || rows > 1) {
    return groups > 2 * rows ? 2 : 4;
  }
  const Json* const own = finder.settings().config.find(module);
  const std::string* const named = own == nullptr ? nullptr : own->get<std::string>("weights");
  const std::string type = named == nullptr ? finder.settings().text("weights") : *named;
  for (const std::uint32_t bits : {2U, 4U}) {
    if (type.ends_with("int" + std::to_string(bits))) {
      return bits;
    }
  }
  return fail(ErrorCode::kAmbiguous,
              "quanto weight " + quote(module) +
                  ": the number of bits per code is ambiguous; pass the folder with its settings");
}

Status add_quanto_groups(MatrixFinder& finder, const std::string& module) {
  const TensorView* const words = finder.find(module, "weight._data._data");
  const TensorView* const scales = finder.find(module, "weight._scale");
  const TensorView* const shifts = finder.find(module, "weight._shift");
  if (!has_rank(words, 2) || words->dtype != DType::kUInt8 || scales == nullptr ||
      shifts == nullptr) {
    return corrupt("quanto weight " + quote(module) + ": its data, scale or shift is missing");
  }
  TRY_ASSIGN(const auto groups, element_count(scales->shape));
  const std::uint64_t part = dim(*words, 0);
  TRY_ASSIGN(const std::uint32_t bits, quanto_bits(finder, module, groups, part));
  QuantizedMatrix matrix;
  matrix.method = "quanto";
  matrix.name = weight_name(module);
  matrix.codes = bits == 2 ? codes_in_parts(finder, *words, 2, 1, {0, 2, 4, 6})
                           : codes_in_parts(finder, *words, 4, 1, {0, 4});
  matrix.codes.rows = groups;
  const auto elements = checked_mul(groups, matrix.codes.columns);
  if (!elements || *elements == 0) {
    return do_not_fit(*words, *scales);
  }
  TRY_ASSIGN(matrix.rows, quanto_rows(finder, module, *elements));
  if (*elements % matrix.rows != 0) {
    return do_not_fit(*words, *scales);
  }
  matrix.columns = *elements / matrix.rows;
  TRY(set_flat_groups(matrix, finder.stored(*scales), matrix.codes.columns, false));
  matrix.minima = numbers_like_scales(finder, matrix, *shifts);
  matrix.minima_negated = true;
  return finder.add(
      std::move(matrix), module,
      {"weight._data._data", "weight._scale", "weight._shift", "input_scale", "output_scale"});
}

}  // namespace

Status find_grouped_axis(MatrixFinder& finder) {
  for (const std::string& module : finder.modules_with("W_q")) {
    if (finder.find(module, "scale") == nullptr && finder.find(module, "packing") == nullptr) {
      continue;  // a parameter of attention
    }
    TRY(finder.accept(add_hqq(finder, module)));
  }
  for (const std::string& module : finder.modules_with("weight._data._data")) {
    TRY(finder.accept(add_quanto_groups(finder, module)));
  }
  return {};
}

}  // namespace onnx_external
