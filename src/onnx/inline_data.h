// The bytes of a tensor that has its data in the model, as raw_data would hold them: little-endian,
// row-major, whatever field they stand in and whether they were left in the file or not.
//
// Source of the rules: onnx.proto, TensorProto. Which typed field holds which element type; narrow
// ones lie in the low bits of int32_data, and 4-bit types with two values in each number.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "onnx/cut_tensors.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Where the bytes are when they are one plain range of the model's file.
struct InlineRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
[[nodiscard]] std::optional<InlineRange> inline_range(const onnx::TensorProto& tensor,
                                                      const CutTensors& cuts);
// Of inline_tensors()[i].
[[nodiscard]] std::optional<InlineRange> inline_range(const Model& model, std::size_t i);

[[nodiscard]] bool has_inline_data(const onnx::TensorProto& tensor);

// Gives the bytes from the first to the last. Memory: a small buffer, or a copy of numbers that
// stand in the model itself. One thread at a time; the tensor and `cuts` must outlive it.
class InlineReader {
 public:
  // Steps of read() must be multiples of this, but for the last one.
  static constexpr std::uint64_t kStepMultiple = 16;

  // kUnsupported for STRING and types without a known size; kCorrupt when the dims say another
  // number of bytes than there are, as far as that shows without reading them.
  [[nodiscard]] static Result<InlineReader> open(const onnx::TensorProto& tensor,
                                                 const CutTensors& cuts);
  // The same for inline_tensors()[i].
  [[nodiscard]] static Result<InlineReader> open(const Model& model, std::size_t i);
  InlineReader(InlineReader&&) noexcept;
  InlineReader& operator=(InlineReader&&) noexcept;
  ~InlineReader();

  [[nodiscard]] std::uint64_t nbytes() const { return nbytes_; }

  // The next bytes. kIo; kCorrupt when there are fewer, or, after the last ones, more.
  [[nodiscard]] Status read(std::span<std::byte> out);

 private:
  class Decoder;
  InlineReader() = default;
  std::uint64_t nbytes_ = 0;
  std::uint64_t position_ = 0;
  std::string_view bytes_;  // without a decoder: all of them
  std::string own_;         // what bytes_ shows, unless it is the tensor's
  std::unique_ptr<Decoder> decoder_;
};

// All of them at once: for small ones.
[[nodiscard]] Result<std::string> inline_bytes(const onnx::TensorProto& tensor,
                                               const CutTensors& cuts);

}  // namespace onnx_external
