// The tensors of a loaded model whose data was not read ("cut" from the message): a placeholder
// stands in raw_data, and the bytes stay in the file.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/file.h"
#include "onnx/placeholder.h"
#include "onnx/wire_scan.h"

namespace onnx_external {

// Data of at least this many bytes stays in the file. For less, the bookkeeping would take as much
// memory as the data.
inline constexpr std::uint64_t kMinCutBytes = 512;

// Immutable once a model is loaded; any thread may call its members.
class CutTensors {
 public:
  CutTensors() = default;  // for a model from memory, which has none

  // The segments of a tensor are its data fields in `file`, in the order of the file.
  CutTensors(std::shared_ptr<const SourceFile> file, WireScan scan, Placeholders placeholders)
      : file_(std::move(file)), scan_(std::move(scan)), placeholders_(placeholders) {
    scan_.messages = {};
  }

  [[nodiscard]] const Placeholders& placeholders() const { return placeholders_; }
  [[nodiscard]] const SourceFile& file() const { return *file_; }
  [[nodiscard]] const std::shared_ptr<const SourceFile>& shared_file() const { return file_; }
  [[nodiscard]] bool empty() const { return scan_.tensors.empty(); }

  // Requires: a placeholder has this number.
  [[nodiscard]] std::span<const WireSegment> segments(std::uint32_t number) const {
    return scan_.segments_of(scan_.tensors[number]);
  }

  // The data fields of a tensor of the model; nothing if its data, if any, is in the message.
  [[nodiscard]] std::optional<std::span<const WireSegment>> find(
      const onnx::TensorProto& tensor) const {
    const auto number = placeholders_.read(tensor.raw_data());
    return number ? std::optional(segments(*number)) : std::nullopt;
  }

 private:
  std::shared_ptr<const SourceFile> file_;
  WireScan scan_;
  Placeholders placeholders_;
};

}  // namespace onnx_external
