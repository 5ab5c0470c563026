#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/quantize.h"
#include "tensor/quantize/scheme_json.h"

namespace onnx_external {
namespace {

// Every value that a field of a scheme or an option may have.
constexpr std::array<std::uint32_t, 2> kCodeBits = {4, 8};
constexpr std::array<std::uint32_t, 3> kKeptBits = {2, 4, 8};
constexpr std::array kScaleTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::array<std::uint32_t, 2> kAccuracyLevels = {0, 4};
constexpr std::array<std::string_view, 3> kHeadNames = {"int4", "int8", "float"};
constexpr std::array<std::string_view, 2> kFormNames = {"matmulnbits", "qdq"};

constexpr std::string_view kZeroPoints = "zero points";
constexpr std::string_view kSymmetric = "symmetric";
constexpr std::string_view kTerms = "terms";
constexpr std::string_view kNearest = "nearest";
constexpr std::string_view kKept = "kept";
constexpr std::string_view kKeepPrefix = "keep";
constexpr std::string_view kScalesEnd = " scales";

template <typename Values, typename Value>
bool is_among(const Values& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

tl::unexpected<Error> wrong_scheme(std::string what) {
  return fail(ErrorCode::kInvalidArgument, std::move(what));
}

std::string steps_text(std::uint32_t steps) {
  return steps == 0 ? std::string(kNearest)
                    : fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
}

// The number that the text consists of, between `before` and `after`.
std::optional<std::uint32_t> number_between(std::string_view before, std::string_view text,
                                            std::string_view after) {
  if (text.size() < before.size() + after.size() || !text.starts_with(before) ||
      !text.ends_with(after)) {
    return std::nullopt;
  }
  const char* const begin = text.data() + before.size();
  const char* const end = text.data() + text.size() - after.size();
  std::uint32_t number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// "int4" or "int4/64".
std::optional<Scheme> scheme_of_head(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto bits = number_between("int", text.substr(0, slash), "");
  if (!bits || !is_among(kCodeBits, *bits)) {
    return std::nullopt;
  }
  Scheme scheme = default_scheme(*bits);
  if (slash != std::string_view::npos) {
    const auto block = number_between("/", text.substr(slash), "");
    if (!block) {
      return std::nullopt;
    }
    scheme.block = *block;
  }
  return scheme;
}

// One of the parts that follow after commas.
bool take_part(std::string_view part, Scheme& scheme) {
  if (part == kZeroPoints || part == kSymmetric) {
    scheme.zero_points = part == kZeroPoints;
    return true;
  }
  if (part.ends_with(kScalesEnd)) {
    part.remove_suffix(kScalesEnd.size());
    const auto dtype = dtype_from_torch_name(part);
    scheme.scales = dtype.value_or(scheme.scales);
    return dtype.has_value();
  }
  const auto one = number_between("", part, " step");
  const auto steps = part == kNearest ? 0 : one ? one : number_between("", part, " steps");
  scheme.steps = steps.value_or(scheme.steps);
  return steps.has_value();
}

// The next part of the text, which is left without it.
std::string_view cut_part(std::string_view& text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const std::string_view part = text.substr(0, comma);
  text.remove_prefix(std::min(comma + 1, text.size()));
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return part;
}

bool take_number(const Json& json, std::uint32_t& out) {
  const bool fits = json.uint() != nullptr && *json.uint() <= kMaxQuantizedBlock;
  out = fits ? static_cast<std::uint32_t>(*json.uint()) : out;
  return fits;
}

bool take_member(std::string_view name, const Json& json, Scheme& scheme) {
  if (name == "zero_points") {
    const auto* const value = std::get_if<bool>(&json.value);
    scheme.zero_points = value == nullptr ? scheme.zero_points : *value;
    return value != nullptr;
  }
  if (name == "terms") {
    const auto* const value = std::get_if<bool>(&json.value);
    scheme.kept = value != nullptr;
    scheme.terms = value != nullptr && *value;
    return value != nullptr;
  }
  if (name == "scales") {
    const auto dtype =
        json.string() == nullptr ? std::nullopt : dtype_from_torch_name(*json.string());
    scheme.scales = dtype.value_or(scheme.scales);
    return dtype.has_value();
  }
  return (name == "bits" && take_number(json, scheme.bits)) ||
         (name == "block" && take_number(json, scheme.block)) ||
         (name == "steps" && take_number(json, scheme.steps));
}

Status check_weights(const QuantizeOptions& options) {
  for (const WeightScheme& each : options.weights) {
    TRY_IN("the weights " + quote(each.pattern), check_scheme(each.scheme));
    if (each.pattern.empty() || each.scheme.kept) {
      return wrong_scheme(each.pattern.empty() ? "the pattern of weights with their own scheme is "
                                                 "empty; use '*' to match all weights"
                                               : "kept codes have the scheme of the checkpoint");
    }
  }
  if (!options.weights.empty() && options.keep == KeepCodes::kElseFloat) {
    return wrong_scheme(
        "weights cannot have their own schemes if nothing is quantized; with a scheme after "
        "'keep', as in 'keep, int8', weights whose codes cannot be kept are quantized");
  }
  return {};
}

// `examples`: further ones for the error.
Result<Scheme> read_scheme(std::string_view text, std::string_view examples) {
  std::string_view rest = text;
  auto scheme = scheme_of_head(cut_part(rest));
  bool is_known = scheme.has_value() && !text.ends_with(',') && !text.ends_with(' ');
  while (is_known && !rest.empty()) {
    is_known = take_part(cut_part(rest), *scheme);
  }
  if (!is_known) {
    return wrong_scheme(
        fmt::format("{} is not a valid quantization; examples are 'int4', 'int8', 'int4/32'{}",
                    quote(text), examples));
  }
  TRY(check_scheme(*scheme));
  return *scheme;
}

}  // namespace

Scheme default_scheme(std::uint32_t bits) {
  return bits == 4 ? Scheme{.bits = 4, .block = 64, .zero_points = true, .steps = 5}
                   : Scheme{.bits = 8, .block = 128, .zero_points = false, .steps = 0};
}

Status check_scheme(const Scheme& scheme) {
  if (scheme.kept && (!is_among(kKeptBits, scheme.bits) || scheme.steps != 0 ||
                      (scheme.terms && scheme.zero_points))) {
    return wrong_scheme("no node multiplies by kept codes of this kind");
  }
  if (scheme.terms && !scheme.kept) {
    return wrong_scheme("only kept codes can have terms");
  }
  if (!scheme.kept && !is_among(kCodeBits, scheme.bits)) {
    return wrong_scheme(fmt::format("codes must have 4 or 8 bits, not {}", scheme.bits));
  }
  if (scheme.block < kMinQuantizedBlock || scheme.block > kMaxQuantizedBlock ||
      (scheme.block & (scheme.block - 1)) != 0) {
    return wrong_scheme(
        fmt::format("a block must have 16, 32, 64, 128 or 256 columns, not {}", scheme.block));
  }
  if (scheme.steps > kMaxSearchSteps || (scheme.steps != 0 && scheme.steps % 2 == 0)) {
    return wrong_scheme(fmt::format(
        "the number of search steps must be odd and at most {}, or 0 for no search, not {}",
        kMaxSearchSteps, scheme.steps));
  }
  if (!is_among(kScaleTypes, scheme.scales)) {
    return wrong_scheme(fmt::format("scales must be float32, float16 or bfloat16, not {}",
                                    torch_name(scheme.scales)));
  }
  return {};
}

std::string scheme_text(const Scheme& scheme) {
  const std::string scales = scheme.scales == DType::kFloat32
                                 ? ""
                                 : fmt::format(", {}{}", torch_name(scheme.scales), kScalesEnd);
  return fmt::format("int{}/{}, {}, {}{}", scheme.bits, scheme.block,
                     scheme.terms         ? kTerms
                     : scheme.zero_points ? kZeroPoints
                                          : kSymmetric,
                     scheme.kept ? std::string(kKept) : steps_text(scheme.steps), scales);
}

Result<Scheme> parse_scheme(std::string_view text) {
  return read_scheme(text,
                     ", 'int4/64, symmetric, nearest' and, for a quantized checkpoint, 'keep'");
}

Status set_scheme(std::string_view text, QuantizeOptions& options) {
  options.keep = KeepCodes::kNo;
  std::string_view rest = text;
  if (cut_part(rest) == kKeepPrefix && text != "keep,") {
    options.keep = rest.empty() ? KeepCodes::kElseFloat : KeepCodes::kElseScheme;
    text = rest;
  }
  if (options.keep == KeepCodes::kElseFloat) {
    return {};
  }
  TRY_ASSIGN(options.scheme, parse_scheme(text));
  return {};
}

Result<WeightScheme> parse_weight_scheme(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return wrong_scheme(quote(text) +
                        " does not have the form PATTERN=SCHEME, as in '*.down_proj.*=int4/128'");
  }
  const std::string_view pattern = text.substr(0, equals);
  TRY_ASSIGN_IN("the weights " + quote(pattern), const Scheme scheme,
                read_scheme(text.substr(equals + 1), " and 'int4/64, symmetric, nearest'"));
  return WeightScheme{std::string(pattern), scheme};
}

std::string scheme_json(const Scheme& scheme) {
  const auto how = scheme.kept ? fmt::format(R"("terms": {})", scheme.terms)
                               : fmt::format(R"("steps": {})", scheme.steps);
  return fmt::format(R"({{"bits": {}, "block": {}, "zero_points": {}, {}, "scales": {}}})",
                     scheme.bits, scheme.block, scheme.zero_points, how,
                     json_quote(torch_name(scheme.scales)));
}

Result<Scheme> parse_scheme(const Json& json) {
  constexpr std::size_t kMembers = 5;
  Scheme scheme;
  scheme.steps = 0;
  bool is_known = json.object() != nullptr && json.object()->size() == kMembers;
  for (std::size_t i = 0; is_known && i < kMembers; ++i) {
    const auto& [name, value] = (*json.object())[i];
    is_known = take_member(name, value, scheme);
  }
  if (!is_known) {
    return corrupt(R"(a quantization has the form )" + scheme_json(default_scheme(4)));
  }
  if (Status status = check_scheme(scheme); !status) {
    return corrupt(status.error().message);
  }
  return scheme;
}

Status check_options(const QuantizeOptions& options) {
  TRY(check_scheme(options.scheme));
  if (options.scheme.kept) {
    return wrong_scheme("kept codes have the scheme of the checkpoint; use 'keep'");
  }
  if (options.keep != KeepCodes::kNo && options.form != QuantizedForm::kMatMulNBits) {
    return wrong_scheme("codes can be kept only for the form matmulnbits");
  }
  if (options.keep != KeepCodes::kNo && options.head == HeadWeights::kInt4) {
    return wrong_scheme(
        "a head whose codes are kept has as many bits as in the checkpoint, so only int8 and float "
        "can be chosen, not int4");
  }
  if (options.head == HeadWeights::kInt4 && options.scheme.bits != 4) {
    return wrong_scheme("a 4-bit head requires 4-bit layers");
  }
  if (!is_among(kAccuracyLevels, options.accuracy_level)) {
    return wrong_scheme(
        fmt::format("the accuracy level must be 0 (floats) or 4 (8-bit activations), not {}",
                    options.accuracy_level));
  }
  if (options.min_columns < 1 || options.min_rows < 1) {
    return wrong_scheme("the smallest number of rows and columns must be at least 1");
  }
  if (is_among(options.keep_float, std::string())) {
    return wrong_scheme(
        "the pattern of weights that are not quantized is empty; use '*' to match all weights");
  }
  return check_weights(options);
}

Scheme head_scheme(const QuantizeOptions& options) {
  Scheme scheme = options.scheme;
  if (scheme.bits == 4 && options.head == HeadWeights::kInt8) {
    scheme.bits = 8;
    scheme.zero_points = false;
    scheme.steps = 0;
  }
  return scheme;
}

std::string_view head_name(HeadWeights head) {
  return kHeadNames[static_cast<std::size_t>(head)];
}

std::string_view form_name(QuantizedForm form) {
  return kFormNames[static_cast<std::size_t>(form)];
}

}  // namespace onnx_external
