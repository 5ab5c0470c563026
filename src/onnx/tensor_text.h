// Serializes a tensor of a model with new data: a reference to external data, inline bytes, or a
// gap that is filled later.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "onnx/model_text.h"
#include "onnx/wire_scan.h"

namespace onnx_external {

// The location of a tensor's bytes, relative to the model file that will be written.
struct ExternalRef {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string checksum;  // lower-case hex SHA-1 of the whole file; empty if not recorded
};

// A gap for bytes that are not yet known. The code that writes the model file fills the gap.
struct DeferredBytes {
  std::uint32_t number = 0;  // chosen by the caller
  std::uint64_t length = 0;
};

// The data of a tensor: a reference to external data, the raw little-endian bytes, or bytes that
// are written later.
using TensorData = std::variant<ExternalRef, std::string, DeferredBytes>;

// The fields of a tensor other than its data, in ascending order, as protobuf writes them.
struct BareTensor {
  onnx::TensorProto head;  // fields before raw_data
  onnx::TensorProto tail;  // fields after raw_data, and unknown ones

  BareTensor() = default;
  explicit BareTensor(const onnx::TensorProto& tensor);
};

// Appends the tensor with the given data. After the call `bare` is unchanged.
void append_tensor(BareTensor& bare, const TensorData& data, ModelText& out);

// Appends the tensor with data fields that are copied from the file from which the model was
// loaded.
void append_tensor(const BareTensor& bare, std::span<const WireSegment> data, ModelText& out);

// Appends a whole message or its fields as protobuf writes them.
void append_message(const google::protobuf::MessageLite& message, ModelText& out);

}  // namespace onnx_external
