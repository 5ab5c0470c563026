// GPTQ's layout, which GPTQModel, AutoGPTQ, AutoRound and others write: codes of columns in words
// [K * bits / 32, N], zero points along N. GPTQModel's gptq_p divides the bits into planes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/code_reader.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/module_settings.h"
#include "checkpoint/quantized/scale_table.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMostZerosRead = 4096;  // of a weight, to tell v1 from v2

bool is_word(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kInt16 ||
         dtype == DType::kInt8 || dtype == DType::kUInt32;
}

// The tensors of a module whose shapes are those of GPTQ.
struct GptqParts {
  std::string module;
  const TensorView* codes = nullptr;
  const TensorView* zeros = nullptr;
  const TensorView* scales = nullptr;
  const TensorView* order = nullptr;
  std::uint64_t bits = 0;
  bool planar = false;  // gptq_p
};

// GPTQModel has 5, 6 and 7 bits only in the format gptq_p, whatever the settings say.
bool is_planar_format(const QuantSettings& settings, std::uint64_t bits) {
  return (bits > 4 && bits < 8) || settings.text("checkpoint_format") == "gptq_p" ||
         settings.text("format") == "gptq_p";
}

// The bits of a code follow from the zero points, of which there is one for each scale.
std::optional<GptqParts> gptq_parts(const MatrixFinder& finder, const std::string& module) {
  GptqParts parts{module, finder.find(module, "qweight"), finder.find(module, "qzeros"),
                  finder.find(module, "scales"), finder.find(module, "g_idx")};
  if (!has_rank(parts.codes, 2) || !has_rank(parts.zeros, 2) || !has_rank(parts.scales, 2) ||
      !is_word(parts.codes->dtype) || parts.zeros->dtype != parts.codes->dtype) {
    return std::nullopt;
  }
  const std::uint64_t rows = dim(*parts.codes, 1);
  const std::uint64_t zero_bits = dim(*parts.zeros, 1) * bit_size(parts.zeros->dtype);
  if (dim(*parts.scales, 1) != rows || dim(*parts.zeros, 0) != dim(*parts.scales, 0) ||
      zero_bits % rows != 0) {
    return std::nullopt;
  }
  parts.bits = zero_bits / rows;
  parts.planar = is_planar_format(finder.settings(), parts.bits);
  return parts;
}

// Codes of 2, 4 and 8 bits are a single plane, and so are not different.
std::vector<std::uint32_t> planes_of(std::uint64_t bits) {
  switch (bits) {
    case 3:
      return {2, 1};
    case 5:
      return {4, 1};
    case 6:
      return {4, 2};
    case 7:
      return {4, 2, 1};
    default:
      return {};
  }
}

CodePacking packing_of(const GptqParts& parts, CodeAxis axis) {
  constexpr std::uint32_t kPlaneCodes = 32;
  CodePacking packing;
  packing.bits = static_cast<std::uint32_t>(parts.bits);
  packing.axis = axis;
  packing.cycle_bits = packing.bits;
  packing.word_bytes = byte_size(parts.codes->dtype);
  if (parts.planar) {
    packing.planes = planes_of(parts.bits);
  }
  if (!packing.planes.empty()) {
    packing.cycle_bits = kPlaneCodes * packing.bits;
    for (std::uint32_t i = 1; i < kPlaneCodes; ++i) {
      packing.shifts.push_back(i * packing.bits);
    }
  }
  return packing;
}

PackedCodes zero_codes_of(const MatrixFinder& finder, const GptqParts& parts) {
  PackedCodes zeros;
  zeros.stored = finder.stored(transposed_view(*parts.zeros));
  zeros.packing = packing_of(parts, CodeAxis::kRows);
  zeros.rows = dim(*parts.codes, 1);
  zeros.columns = dim(*parts.zeros, 0);
  zeros.line_bytes = zeros.columns * byte_size(parts.zeros->dtype);
  return zeros;
}

// --- which version of the format ---------------------------------------------------------------

enum class ZeroPoints : std::uint8_t { kAsStored, kOneLess, kVaried };

// Finds out whether the first zero points of a weight are all the middle of the codes, or all one
// less, as in symmetric weights.
Result<ZeroPoints> sample_zeros(const PackedCodes& zeros) {
  const std::uint64_t rows =
      std::clamp<std::uint64_t>(kMostZerosRead / zeros.columns, 1, zeros.rows);
  const std::uint64_t columns = std::min(zeros.columns, kMostZerosRead);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns));
  TRY(read_codes(zeros, zeros.columns, {0, rows, 0, columns}, codes));
  const bool is_constant = std::all_of(codes.begin(), codes.end(),
                                       [&](std::uint8_t code) { return code == codes.front(); });
  const std::uint32_t middle = std::uint32_t{1} << (zeros.packing.bits - 1);
  if (!is_constant || (codes.front() != middle && codes.front() + 1U != middle)) {
    return ZeroPoints::kVaried;
  }
  return codes.front() == middle ? ZeroPoints::kAsStored : ZeroPoints::kOneLess;
}

// Returns which version of the format the settings state: GPTQ's first version stores zero points
// minus one. AutoRound's formats "auto_round" and "auto_round:gptqmodel" store them unchanged.
std::optional<bool> says_second_version(const QuantSettings& settings) {
  const std::string format = settings.text("checkpoint_format");
  const std::string other = settings.text("format");
  const std::string packing = settings.text("packing_format");
  if (format == "gptq_v2" || other == "gptq_v2" || packing == "auto_round" ||
      packing == "auto_round:gptqmodel") {
    return true;
  }
  return settings.is_given() ? std::optional(false) : std::nullopt;
}

// Returns whether zero points are stored unchanged. If possible, the values decide, because there
// are files whose settings state the wrong version.
Result<bool> is_second_version(MatrixFinder& finder, const std::vector<PackedCodes>& zeros) {
  std::size_t as_stored = 0;
  std::size_t one_less = 0;
  for (const PackedCodes& one : zeros) {
    TRY_ASSIGN_IN(quote(one.stored.view.name), const auto seen, sample_zeros(one));
    as_stored += seen == ZeroPoints::kAsStored ? 1 : 0;
    one_less += seen == ZeroPoints::kOneLess ? 1 : 0;
    if (seen == ZeroPoints::kVaried) {
      as_stored = one_less = 0;
      break;
    }
  }
  const auto said = says_second_version(finder.settings());
  if (as_stored != zeros.size() && one_less != zeros.size()) {
    if (as_stored + one_less > 0) {
      return corrupt(
          "some GPTQ weights have \"gptq\" zero points, others have \"gptq_v2\" zero points");
    }
    if (!said) {
      return fail(ErrorCode::kAmbiguous,
                  "these are GPTQ weights with zero points, which two versions of the format store "
                  "differently; pass the folder, whose config states the version");
    }
    return *said;
  }
  const bool seen = as_stored > 0;
  if (said && *said != seen) {
    finder.note(fmt::format(
        "{} says \"{}\", but all zero points have the form of \"{}\", and are read in that form",
        finder.settings().place, *said ? "gptq_v2" : "gptq", seen ? "gptq_v2" : "gptq"));
  }
  return seen;
}

Status add_gptq(MatrixFinder& finder, const GptqParts& parts, bool is_v2, PackedCodes zeros) {
  QuantizedMatrix matrix;
  matrix.method = "GPTQ";
  matrix.name = weight_name(parts.module);
  const std::uint64_t bits = parts.bits;
  const std::uint64_t stored_bits = dim(*parts.codes, 0) * bit_size(parts.codes->dtype);
  if (stored_bits % bits != 0) {
    return do_not_fit(*parts.codes, *parts.zeros);
  }
  matrix.rows = dim(*parts.codes, 1);
  matrix.columns = stored_bits / bits;
  matrix.codes.stored = finder.stored(transposed_view(*parts.codes));
  matrix.codes.packing = packing_of(parts, CodeAxis::kColumns);
  matrix.codes.rows = matrix.rows;
  matrix.codes.columns = matrix.columns;
  matrix.codes.line_bytes = dim(*parts.codes, 0) * byte_size(parts.codes->dtype);
  TRY(set_scale_table(finder, matrix, transposed_view(*parts.scales),
                      {1, number_for(finder.settings(), parts.module, "group_size")}));
  matrix.zero_codes = std::move(zeros);
  matrix.zero_add = is_v2 ? 0 : 1;
  if (parts.order != nullptr) {
    matrix.group_index = finder.stored(*parts.order);
  }
  return finder.add(std::move(matrix), parts.module, {"qweight", "qzeros", "scales", "g_idx"});
}

bool has_known_words(const GptqParts& parts) {
  const bool is_planar = parts.planar && !planes_of(parts.bits).empty();
  return parts.bits >= 2 && parts.bits <= 8 &&
         (!is_planar || byte_size(parts.codes->dtype) == sizeof(std::uint32_t));
}

}  // namespace

Status find_gptq(MatrixFinder& finder) {
  if (finder.settings().method == "awq") {
    return {};
  }
  std::vector<GptqParts> found;
  std::vector<PackedCodes> zeros;
  for (const std::string& module : finder.modules_with("qweight")) {
    auto parts = gptq_parts(finder, module);
    if (parts && !has_known_words(*parts)) {
      TRY(finder.accept(do_not_fit(*parts->codes, *parts->zeros)));
    } else if (parts && parts->planar) {  // has the zero points of the second version
      TRY(finder.accept(add_gptq(finder, *parts, true, zero_codes_of(finder, *parts))));
    } else if (parts) {
      zeros.push_back(zero_codes_of(finder, *parts));
      found.push_back(*std::move(parts));
    }
  }
  if (found.empty()) {
    return {};
  }
  const auto is_v2 = is_second_version(finder, zeros);
  if (!is_v2) {
    return finder.accept(fail(is_v2.error()));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    TRY(finder.accept(add_gptq(finder, found[i], *is_v2, std::move(zeros[i]))));
  }
  return {};
}

}  // namespace onnx_external
