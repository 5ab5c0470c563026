// Reads the inline data of a tensor from any field that can hold it, and returns it in the form of
// raw_data (little-endian, row-major). The data may have been left in the file when the model was
// loaded.
//
// Source: TensorProto in onnx.proto, which defines the field for each element type. Narrow types
// are in the low bits of int32_data. For 4-bit types, each number in int32_data holds two values.
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

// A range of the model's file that holds exactly the bytes of a tensor.
struct InlineRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
[[nodiscard]] std::optional<InlineRange> inline_range(const onnx::TensorProto& tensor,
                                                      const CutTensors& cuts);
// Returns the range for model.inline_tensors()[i].
[[nodiscard]] std::optional<InlineRange> inline_range(const Model& model, std::size_t i);

[[nodiscard]] bool has_inline_data(const onnx::TensorProto& tensor);

// Reads the bytes of one tensor from first to last. Needs memory for a small buffer, or for a copy
// of the numbers if they are in the message itself. For use by one thread at a time. The tensor and
// the CutTensors must outlive the reader.
class InlineReader {
 public:
  // Every call of read() except the last must read a multiple of this many bytes.
  static constexpr std::uint64_t kStepMultiple = 16;

  // Creates a reader. Fails with kUnsupported for STRING and types without a known size, and with
  // kCorrupt if the number of bytes is known to differ from the number that the dims require.
  [[nodiscard]] static Result<InlineReader> open(const onnx::TensorProto& tensor,
                                                 const CutTensors& cuts);
  // Creates a reader for model.inline_tensors()[i].
  [[nodiscard]] static Result<InlineReader> open(const Model& model, std::size_t i);
  InlineReader(InlineReader&&) noexcept;
  InlineReader& operator=(InlineReader&&) noexcept;
  ~InlineReader();

  [[nodiscard]] std::uint64_t nbytes() const { return nbytes_; }

  // Reads the next bytes. Fails with kCorrupt if the tensor has fewer bytes than its dims require
  // or, in the last call, if it has more. Fails with kIo if the file cannot be read.
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
