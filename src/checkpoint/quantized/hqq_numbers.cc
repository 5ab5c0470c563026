#include "checkpoint/quantized/hqq_numbers.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/number_reader.h"
#include "tensor/cast.h"
#include "tensor/whole_elements.h"

namespace onnx_external {
namespace {

// The scales and zero points of codes: those of code i are at i % count (axis 0) or i / run.
struct CodeNumbers {
  std::vector<double> scales;
  std::vector<double> zeros;
  std::uint64_t run = 0;  // 0 with axis 0
  DType dtype = DType::kFloat32;

  [[nodiscard]] std::size_t place(std::uint64_t i) const {
    return static_cast<std::size_t>(run == 0 ? i % scales.size() : i / run);
  }
};

void round_to(DType dtype, std::span<float> values) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
    std::vector<std::byte> rounded(values.size() * byte_size(dtype));
    cast_elements(DType::kFloat32, dtype, std::as_bytes(values), rounded);
    cast_elements(dtype, DType::kFloat32, rounded, std::as_writable_bytes(values));
  }
}

// (q - z) * s, both operations in the type of the scales, as HQQ computes them.
std::vector<float> values_from(const CodeNumbers& numbers, std::uint64_t first,
                               std::span<const std::uint8_t> codes) {
  std::vector<float> values(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    values[i] = static_cast<float>(codes[i] - numbers.zeros[numbers.place(first + i)]);
  }
  round_to(numbers.dtype, values);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    values[i] = static_cast<float>(values[i] * numbers.scales[numbers.place(first + i)]);
  }
  round_to(numbers.dtype, values);
  return values;
}

Result<CodeNumbers> code_numbers(const MatrixFinder& finder, const std::string& module,
                                 const std::string& meta, const TensorView& codes) {
  const TensorView* const scales = finder.find(module, meta + "scale");
  const TensorView* const zeros = finder.find(module, meta + "zero");
  TRY_ASSIGN(const auto all, element_count(codes.shape));
  const std::uint64_t count = scales == nullptr ? 0 : element_count(scales->shape).value_or(0);
  if (scales == nullptr || zeros == nullptr || zeros->shape != scales->shape || count == 0 ||
      all % count != 0 || codes.dtype != DType::kUInt8 || !is_floating(scales->dtype) ||
      !is_floating(zeros->dtype)) {
    return corrupt(quote(codes.name) + ": " + quote(meta + "scale") + " or " +
                   quote(meta + "zero") + " of the module is missing or does not fit");
  }
  CodeNumbers numbers;
  numbers.dtype = scales->dtype;
  TRY_ASSIGN(numbers.scales, read_first_numbers(finder.stored(*scales), count));
  TRY_ASSIGN(numbers.zeros, read_first_numbers(finder.stored(*zeros), count));
  TRY_ASSIGN(const auto axis, hqq_axis(finder, module, meta + "axis"));
  numbers.run = axis == 1 ? all / count : 0;
  return numbers;
}

// Reads the float32 values of the codes.
ReadSource values_of(ReadSource codes, CodeNumbers numbers) {
  const auto read_whole = [codes = std::move(codes), numbers = std::move(numbers)](
                              std::uint64_t offset, std::span<std::byte> out) -> Status {
    const std::uint64_t first = offset / sizeof(float);
    std::vector<std::uint8_t> read(out.size() / sizeof(float));
    TRY(codes(first, std::as_writable_bytes(std::span(read))));
    const std::vector<float> values = values_from(numbers, first, read);
    std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
    return {};
  };
  return [read = ReadSource(read_whole)](std::uint64_t first, std::span<std::byte> out) {
    return read_whole_elements(sizeof(float), first, out, read);
  };
}

}  // namespace

Result<std::optional<std::int64_t>> hqq_integer(const MatrixFinder& finder,
                                                const std::string& module,
                                                std::string_view component) {
  const TensorView* const view = finder.find(module, component);
  const bool is_one = view != nullptr && element_count(view->shape).value_or(0) == 1 &&
                      (view->dtype == DType::kInt32 || view->dtype == DType::kInt64);
  if (!is_one) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto values, read_integers(finder.stored(*view), 1));
  return values.front();
}

Result<std::optional<std::int64_t>> hqq_axis(const MatrixFinder& finder, const std::string& module,
                                             std::string_view component) {
  TRY_ASSIGN(const auto axis, hqq_integer(finder, module, component));
  if (axis && *axis != 0 && *axis != 1) {
    return unsupported("HQQ weight " + quote(module) + ": " + quote(std::string(component)) +
                       " is " + std::to_string(*axis) + ", but must be 0 or 1");
  }
  return axis;
}

Result<std::optional<StoredTensor>> hqq_numbers(const MatrixFinder& finder,
                                                const std::string& module,
                                                const std::string& name) {
  if (const TensorView* const plain = finder.find(module, name); plain != nullptr) {
    return finder.stored(*plain);
  }
  const TensorView* const codes = finder.find(module, name + "_q");
  if (codes == nullptr) {
    return std::nullopt;
  }
  TRY_ASSIGN(auto numbers, code_numbers(finder, module, "meta_" + name + ".", *codes));
  StoredTensor values = finder.stored(*codes);
  values.read = values_of(std::move(values.read), std::move(numbers));
  values.view.dtype = DType::kFloat32;
  return values;
}

}  // namespace onnx_external
