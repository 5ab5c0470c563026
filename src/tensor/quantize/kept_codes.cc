#include "tensor/quantize/kept_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/bad_input.h"
#include "base/try.h"
#include "tensor/cast.h"
#include "tensor/quantize/float_environment.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kWholeRowBlock = 128;  // where one scale is for a whole row
constexpr std::int64_t kLeastWholeRowBlock = 32;

// The values of e2m1, doubled and moved so that 128 is 0.
constexpr std::array<std::uint8_t, 16> kDoubledE2M1 = {128, 129, 130, 131, 132, 134, 136, 140,
                                                       128, 127, 126, 125, 124, 122, 120, 116};

std::uint32_t node_bits(const StoredCodes& stored) {
  const bool is_wide = stored.values == CodeValues::kE2M1 || stored.bits > 4;
  return is_wide ? 8 : stored.bits > 2 ? 4 : 2;
}

// The largest power of two that divides the number.
std::int64_t power_of_two_in(std::int64_t number) {
  return number & -number;
}

// The columns of a block; fewer than kMinQuantizedBlock if no block fits.
std::int64_t block_of(const StoredCodes& stored) {
  if (stored.group < stored.columns) {
    return std::min<std::int64_t>(power_of_two_in(stored.group), kMaxQuantizedBlock);
  }
  const std::int64_t whole = std::min(power_of_two_in(stored.columns), kWholeRowBlock);
  return whole < kLeastWholeRowBlock ? kWholeRowBlock : whole;
}

// Returns the number to add to codes and zero points, so that the middle of the stored codes
// becomes the middle of the node's codes.
int added_to_codes(const KeptForm& form) {
  return (1 << (form.scheme.bits - 1)) - (1 << (form.stored.bits - 1));
}

template <std::uint32_t kBits>
void pack(const std::uint8_t* codes, std::size_t bytes, std::byte* out) {
  constexpr std::size_t kInByte = 8 / kBits;
  for (std::size_t i = 0; i < bytes; ++i) {
    unsigned packed = 0;
    for (std::size_t j = 0; j < kInByte; ++j) {
      packed |= static_cast<unsigned>(codes[i * kInByte + j]) << (j * kBits);
    }
    out[i] = static_cast<std::byte>(packed);
  }
}

void pack_codes(std::uint32_t bits, std::span<const std::uint8_t> codes, std::byte* out) {
  if (bits == 8) {
    std::memcpy(out, codes.data(), codes.size());
  } else if (bits == 4) {
    pack<4>(codes.data(), codes.size() / 2, out);
  } else {
    pack<2>(codes.data(), codes.size() / 4, out);
  }
}

// Writes scales and terms in their type, rounded to the nearest. False if one is too large.
bool store(DType dtype, std::span<const float> values, std::byte* out) {
  const std::span<std::byte> bytes(out, values.size() * byte_size(dtype));
  cast_elements(DType::kFloat32, dtype, std::as_bytes(values), bytes);
  if (dtype == DType::kFloat32) {
    return true;
  }
  const std::uint16_t exponent = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
  bool fits = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, out + i * sizeof(narrow), sizeof(narrow));
    fits = fits && (!std::isfinite(values[i]) || (narrow & exponent) != exponent);
  }
  return fits;
}

// Makes the parts of one row at a time.
class RowKeeper {
 public:
  RowKeeper(const KeptForm& form, std::span<const std::int32_t> order)
      : form_(form),
        order_(order),
        columns_(static_cast<std::size_t>(form.stored.columns)),
        blocks_((columns_ + form.scheme.block - 1) / form.scheme.block),
        middle_(static_cast<std::uint8_t>(1U << (form.scheme.bits - 1))),
        codes_(blocks_ * form.scheme.block, middle_),
        values_(blocks_),
        group_of_block_(blocks_) {
    for (std::size_t block = 0; block < blocks_; ++block) {
      group_of_block_[block] =
          block * form.scheme.block / static_cast<std::size_t>(group_columns());
    }
  }

  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t groups() const {
    const auto group = static_cast<std::size_t>(group_columns());
    return (columns_ + group - 1) / group;
  }

  void codes(const std::uint8_t* stored, std::byte* out) {
    if (!order_.empty()) {
      for (std::size_t i = 0; i < columns_; ++i) {
        codes_[i] = stored[order_[i]];
      }
      stored = codes_.data();
    }
    const bool is_plain = form_.stored.values == CodeValues::kUnsigned;
    if (is_plain && stored != codes_.data() && added_to_codes(form_) == 0 &&
        columns_ == codes_.size()) {
      return pack_codes(form_.scheme.bits, {stored, columns_}, out);
    }
    const auto added = static_cast<unsigned>(added_to_codes(form_));
    for (std::size_t i = 0; is_plain && i < columns_; ++i) {
      codes_[i] = static_cast<std::uint8_t>(stored[i] + added);
    }
    for (std::size_t i = 0; !is_plain && i < columns_; ++i) {
      codes_[i] = kDoubledE2M1[stored[i] & 15U];
    }
    pack_codes(form_.scheme.bits, codes_, out);
  }

  bool scales(const double* stored, std::byte* out) {
    const double factor = form_.stored.values == CodeValues::kE2M1 ? 0.5 : 1.0;
    for (std::size_t block = 0; block < blocks_; ++block) {
      values_[block] = static_cast<float>(stored[group_of_block_[block]] * factor);
    }
    return store(form_.scheme.scales, values_, out);
  }

  // False if one of them is no code.
  bool zero_points(const double* stored, std::byte* out) {
    const std::size_t in_byte = 8 / form_.scheme.bits;
    const double most = (1U << form_.scheme.bits) - 1;
    const double added = added_to_codes(form_);
    zeros_.assign((blocks_ + in_byte - 1) / in_byte * in_byte, middle_);
    int others = 0;
    for (std::size_t block = 0; block < blocks_; ++block) {
      const double zero = zero_of(stored, block) + added;
      const double limited = zero > 0 ? (zero < most ? zero : most) : 0;  // also of NaN
      const auto code = static_cast<std::int32_t>(limited);
      others += static_cast<double>(code) == zero ? 0 : 1;
      zeros_[block] = static_cast<std::uint8_t>(code);
    }
    const bool fits = others == 0;
    pack_codes(form_.scheme.bits, zeros_, out);
    return fits;
  }

  // Computes the terms, the remaining part of each weight: (middle - z) * s + m.
  bool terms(const double* scales, const double* zeros, const double* minima, std::byte* out) {
    const double middle = 1U << (form_.stored.bits - 1);
    for (std::size_t block = 0; block < blocks_; ++block) {
      const std::size_t group = group_of_block_[block];
      const double minimum = minima == nullptr ? 0 : minima[group];
      values_[block] =
          static_cast<float>((middle - zero_of(zeros, block)) * scales[group] + minimum);
    }
    return store(form_.scheme.scales, values_, out);
  }

 private:
  [[nodiscard]] double zero_of(const double* zeros, std::size_t block) const {
    return zeros == nullptr ? form_.stored.zero : zeros[group_of_block_[block]];
  }
  [[nodiscard]] std::int64_t group_columns() const {
    return std::min(form_.stored.group, form_.stored.columns);
  }

  const KeptForm& form_;
  std::span<const std::int32_t> order_;
  std::size_t columns_;
  std::size_t blocks_;
  std::uint8_t middle_;
  std::vector<std::uint8_t> codes_;  // of the node, with the padding
  std::vector<std::uint8_t> zeros_;
  std::vector<float> values_;
  std::vector<std::size_t> group_of_block_;
};

tl::unexpected<Error> too_large(std::uint64_t row, std::string_view what, DType dtype) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("row {}: a {} is too large for {}", row, what, torch_name(dtype)));
}

}  // namespace

Result<KeptForm> kept_form(const StoredCodes& stored, DType scales) {
  KeptForm form{stored, {}};
  const std::int64_t block = block_of(stored);
  if (block < std::int64_t{kMinQuantizedBlock}) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("its scales are for groups of {} columns, and no node supports a block "
                            "size that divides them",
                            stored.group));
  }
  const bool has_terms = stored.zeros == CodeZeros::kAny;
  if (has_terms && stored.columns % block != 0) {
    return fail(ErrorCode::kUnsupported,
                "its zero points are not integers, and its last group is shorter than the others");
  }
  form.scheme = {.bits = node_bits(stored),
                 .block = static_cast<std::uint32_t>(block),
                 .zero_points = stored.zeros == CodeZeros::kIntegers,
                 .steps = 0,
                 .scales = scales,
                 .kept = true,
                 .terms = has_terms};
  return form;
}

Result<std::vector<std::int32_t>> order_by_group(std::span<const std::int32_t> groups,
                                                 std::int64_t group) {
  const auto columns = static_cast<std::int64_t>(groups.size());
  std::vector<std::int32_t> next(static_cast<std::size_t>((columns + group - 1) / group));
  for (std::size_t g = 0; g < next.size(); ++g) {
    next[g] = static_cast<std::int32_t>(static_cast<std::int64_t>(g) * group);
  }
  std::vector<std::int32_t> order(groups.size());
  bool is_sorted = true;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const auto g = static_cast<std::size_t>(groups[k]);
    const std::int64_t end =
        g < next.size() ? std::min(columns, static_cast<std::int64_t>(g + 1) * group) : 0;
    if (g >= next.size() || next[g] >= end) {
      return fail(
          ErrorCode::kUnsupported,
          "its groups have different numbers of columns, but all blocks have the same length");
    }
    is_sorted = is_sorted && next[g] == static_cast<std::int32_t>(k);
    order[static_cast<std::size_t>(next[g]++)] = static_cast<std::int32_t>(k);
  }
  return is_sorted ? std::vector<std::int32_t>() : order;
}

Status keep_rows(const KeptForm& form, std::span<const std::int32_t> order, std::uint64_t first_row,
                 const StoredRows& rows, const PackedRows& out) {
  const DefaultFloatEnvironment environment;
  RowKeeper keeper(form, order);
  const std::size_t count = rows.scales.size() / keeper.groups();
  for (std::size_t row = 0; row < count; ++row) {
    const auto part = [&](std::span<std::byte> bytes) {
      return bytes.data() + bytes.size() / count * row;
    };
    const auto numbers = [&](std::span<const double> all) {
      return all.empty() ? nullptr : all.data() + row * keeper.groups();
    };
    if (!rows.codes.empty()) {
      keeper.codes(rows.codes.data() + row * keeper.columns(), part(out.codes));
    }
    if (!keeper.scales(numbers(rows.scales), part(out.scales))) {
      return too_large(first_row + row, "scale", form.scheme.scales);
    }
    if (form.scheme.zero_points &&
        !keeper.zero_points(numbers(rows.zeros), part(out.zero_points))) {
      return corrupt(fmt::format("row {}: a zero point does not fit into {} bits", first_row + row,
                                 form.stored.bits));
    }
    if (form.scheme.terms && !keeper.terms(numbers(rows.scales), numbers(rows.zeros),
                                           numbers(rows.minima), part(out.zero_points))) {
      return too_large(first_row + row, "term of a block", form.scheme.scales);
    }
  }
  return {};
}

bool keeps_bytes(const KeptForm& form) {
  return form.stored.values == CodeValues::kUnsigned && form.stored.in_order &&
         form.stored.bits == form.scheme.bits && form.stored.columns % form.scheme.block == 0;
}

}  // namespace onnx_external
