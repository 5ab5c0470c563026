// Keeps track of tensors whose data was left in the model's file when the model was loaded. Such a
// tensor has a placeholder in raw_data and is called "cut".
//
// A placeholder begins with 16 bytes that are chosen at random for each model, so that data in a
// file is not mistaken for a placeholder.
#pragma once

#include <onnx/onnx_pb.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "onnx/wire_scan.h"

namespace onnx_external {

// Creates and recognizes the placeholders of one model. Immutable; may be used by any thread.
class Placeholders {
 public:
  static constexpr std::size_t kBytes = 20;

  Placeholders();
  // Returns the placeholder of a tensor. `number` is the index of the tensor among the cut tensors.
  [[nodiscard]] std::string text(std::uint32_t number) const;
  [[nodiscard]] std::optional<std::uint32_t> read(std::string_view raw_data) const;

 private:
  static constexpr std::size_t kNonceBytes = kBytes - sizeof(std::uint32_t);
  std::array<char, kNonceBytes> nonce_{};
};

// The minimum size of data that is left in the file. For smaller data, keeping track of it would
// need as much memory as the data.
inline constexpr std::uint64_t kMinCutBytes = 512;

// The cut tensors of a model. Immutable once the model is loaded; any thread may call the member
// functions.
class CutTensors {
 public:
  CutTensors() = default;  // for a model from memory, which has no cut tensors

  // `scan` lists the data fields of the cut tensors in `file`, as segments in the order of the
  // file.
  CutTensors(std::shared_ptr<const SourceFile> file, WireScan scan, Placeholders placeholders)
      : file_(std::move(file)), scan_(std::move(scan)), placeholders_(placeholders) {
    scan_.messages = {};
  }

  [[nodiscard]] const Placeholders& placeholders() const { return placeholders_; }
  [[nodiscard]] const SourceFile& file() const { return *file_; }
  [[nodiscard]] const std::shared_ptr<const SourceFile>& shared_file() const { return file_; }
  [[nodiscard]] bool empty() const { return scan_.tensors.empty(); }

  // Returns the data fields of the tensor with this placeholder number. Requires: there is such a
  // placeholder.
  [[nodiscard]] std::span<const WireSegment> segments(std::uint32_t number) const {
    return scan_.segments_of(scan_.tensors[number]);
  }

  // Returns the data fields of a tensor in the model, or nullopt if the tensor is not cut.
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
