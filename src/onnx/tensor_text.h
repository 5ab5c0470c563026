// Serializes a model's tensor with other data: a reference to external data, bytes, or a gap.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "onnx/model_text.h"
#include "onnx/wire_scan.h"

namespace onnx_external {

// The place of the bytes of a tensor, relative to the model file that will be written.
struct ExternalRef {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string checksum;  // lower-case hex SHA-1 of the whole file; empty = not recorded
};

// A gap for bytes that are not known yet. The code that writes the model file fills it.
struct DeferredBytes {
  std::uint32_t number = 0;  // chosen by the caller
  std::uint64_t length = 0;
};

// A reference, the raw little-endian bytes, or bytes that will come later.
using TensorData = std::variant<ExternalRef, std::string, DeferredBytes>;

// The fields of a tensor that hold no data, in the order of their numbers, as protobuf writes them.
struct BareTensor {
  onnx::TensorProto head;  // fields before raw_data
  onnx::TensorProto tail;  // fields after raw_data, and unknown ones

  BareTensor() = default;
  explicit BareTensor(const onnx::TensorProto& tensor);
};

// Appends the tensor with the given data. Leaves `bare` as it was.
void append_tensor(BareTensor& bare, const TensorData& data, ModelText& out);

// Appends the tensor with data fields that stay in the file that the model was loaded from.
void append_tensor(const BareTensor& bare, std::span<const WireSegment> data, ModelText& out);

// Appends a whole message, or the fields of one, as protobuf writes it.
void append_message(const google::protobuf::MessageLite& message, ModelText& out);

}  // namespace onnx_external
