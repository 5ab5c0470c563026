// Reads the inline data of a tensor in the form of raw_data (little-endian, row-major), from any
// field that can hold it, even if the data was left in the file when the model was loaded.
//
// Source of the rules: onnx.proto, TensorProto, which says which typed field holds which element
// type. Narrow types are in the low bits of int32_data; for 4-bit types, each number holds two
// values.
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

// The range of the model's file that holds exactly the bytes of a tensor, if there is one.
struct InlineRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
[[nodiscard]] std::optional<InlineRange> inline_range(const onnx::TensorProto& tensor,
                                                      const CutTensors& cuts);
// Returns the same for inline_tensors()[i].
[[nodiscard]] std::optional<InlineRange> inline_range(const Model& model, std::size_t i);

[[nodiscard]] bool has_inline_data(const onnx::TensorProto& tensor);

// Reads the bytes of one tensor from first to last. Memory: a small buffer, or a copy of the
// numbers if they are in the message itself. One thread at a time; the tensor and `cuts` must
// outlive the reader.
class InlineReader {
 public:
  // Every call of read() except the last must read a multiple of this many bytes.
  static constexpr std::uint64_t kStepMultiple = 16;

  // kUnsupported for STRING and types without a known size. kCorrupt if the dims require another
  // number of bytes than there are, as far as this is known without reading them.
  [[nodiscard]] static Result<InlineReader> open(const onnx::TensorProto& tensor,
                                                 const CutTensors& cuts);
  // Does the same for inline_tensors()[i].
  [[nodiscard]] static Result<InlineReader> open(const Model& model, std::size_t i);
  InlineReader(InlineReader&&) noexcept;
  InlineReader& operator=(InlineReader&&) noexcept;
  ~InlineReader();

  [[nodiscard]] std::uint64_t nbytes() const { return nbytes_; }

  // Reads the next bytes. Errors: kIo; kCorrupt if there are too few bytes, or if some are left
  // after the last call.
  [[nodiscard]] Status read(std::span<std::byte> out);

 private:
  class Decoder;
  InlineReader() = default;
  std::uint64_t nbytes_ = 0;
  std::uint64_t position_ = 0;
  std::string_view bytes_;  // bytes left to read, if there is no decoder
  std::string own_;         // owns the memory of bytes_, unless the tensor does
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace onnx_external
