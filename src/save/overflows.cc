#include "save/overflows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/try.h"
#include "save/planned_bytes.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kElementsAtOnce = std::uint64_t{64} << 10U;

// The bits of infinity, without the sign.
template <typename Bits>
bool has_bits(std::span<const std::byte> elements, Bits infinity) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1U;
  Bits found = 0;
  for (std::size_t i = 0; i + sizeof(Bits) <= elements.size(); i += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, &elements[i], sizeof(Bits));
    found = static_cast<Bits>(found | static_cast<Bits>((bits & kMagnitude) == infinity));
  }
  return found != 0;
}

DType source_type(const Checkpoint& checkpoint, const PlannedTensor& tensor) {
  return checkpoint.tensors()[tensor.source_index].dtype;
}

// Counts the finite elements of `source` whose conversion in `converted` is infinite.
void add_overflows(std::span<const double> source, std::span<const double> converted,
                   Overflow& overflow) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (std::isinf(converted[i]) && std::isfinite(source[i])) {
      ++overflow.values;
      overflow.largest = std::max(overflow.largest, std::abs(source[i]));
    }
  }
}

// Elements of a type, as doubles.
std::vector<double> widened(DType dtype, std::span<const std::byte> elements) {
  std::vector<double> out(elements.size() / byte_size(dtype));
  if (dtype == DType::kFloat64) {
    std::memcpy(out.data(), elements.data(), elements.size());
  } else {
    cast_elements(dtype, DType::kFloat64, elements, std::as_writable_bytes(std::span(out)));
  }
  return out;
}

Result<Overflow> count_overflow(const Checkpoint& checkpoint, const PlannedTensor& tensor) {
  const DType from = source_type(checkpoint, tensor);
  const DType to = *tensor.cast_to;
  const DerivedView view = planned_view(checkpoint, tensor);
  const std::uint64_t elements = tensor.nbytes / byte_size(to);
  std::vector<std::byte> source;
  std::vector<std::byte> converted;
  Overflow overflow;
  for (std::uint64_t done = 0; done < elements; done += kElementsAtOnce) {
    const std::uint64_t count = std::min(kElementsAtOnce, elements - done);
    source.resize(count * byte_size(from));
    converted.resize(count * byte_size(to));
    TRY(checkpoint.read(*view, done * byte_size(from), source));
    cast_elements(from, to, source, converted);
    if (has_infinity(to, converted)) {
      add_overflows(widened(from, source), widened(to, converted), overflow);
    }
  }
  return overflow;
}

}  // namespace

bool may_overflow(const Checkpoint& checkpoint, const PlannedTensor& tensor) {
  if (!tensor.cast_to || tensor.packed) {  // to quantize an infinity is an error
    return false;
  }
  const DType from = source_type(checkpoint, tensor);
  switch (*tensor.cast_to) {
    case DType::kFloat16:  // the 8-bit types have values up to 57,344
      return byte_size(from) >= 4 || from == DType::kBFloat16;
    case DType::kBFloat16:
      return byte_size(from) >= 4;
    case DType::kFloat32:
      return from == DType::kFloat64;
    default:
      return false;
  }
}

bool has_infinity(DType dtype, std::span<const std::byte> elements) {
  constexpr std::uint16_t kHalf = 0x7c00;
  constexpr std::uint16_t kBFloat = 0x7f80;
  constexpr std::uint32_t kFloat = 0x7f800000;
  switch (dtype) {
    case DType::kFloat16:
      return has_bits(elements, kHalf);
    case DType::kBFloat16:
      return has_bits(elements, kBFloat);
    case DType::kFloat32:
      return has_bits(elements, kFloat);
    default:
      return false;
  }
}

Result<std::map<std::size_t, Overflow>> find_overflows(const SavePlan& plan,
                                                       const Checkpoint& checkpoint,
                                                       const std::vector<bool>& infinite_ranges) {
  std::map<std::size_t, Overflow> found;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    const bool is_seen = tensor.range && (*tensor.range >= infinite_ranges.size() ||  // linked
                                          !infinite_ranges[*tensor.range]);
    if (!may_overflow(checkpoint, tensor) || is_seen) {
      continue;
    }
    if (kind_of_source(checkpoint, tensor) == StorageKind::kMade) {
      continue;  // its bytes no longer exist, so they cannot be read again
    }
    TRY_ASSIGN(const Overflow overflow, count_overflow(checkpoint, tensor));
    if (overflow.values > 0) {
      found.emplace(i, overflow);
    }
  }
  return found;
}

}  // namespace onnx_external
