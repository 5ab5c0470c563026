// A tensor of a model as it will stand in a file, with its data in another place.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "onnx/model_text.h"
#include "onnx/wire_scan.h"

namespace onnx_external {

// Where the bytes of a tensor are, relative to the model file that will be written.
struct ExternalRef {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string checksum;  // lower-case hex SHA-1 of the whole file; empty = not recorded
};

// Bytes that will stand in the model file, put there by whoever writes it: not yet known.
struct DeferredBytes {
  std::uint32_t number = 0;  // the caller's
  std::uint64_t length = 0;
};

// A reference, the raw little-endian bytes, or bytes that come later.
using TensorData = std::variant<ExternalRef, std::string, DeferredBytes>;

// What a tensor says beside its data, as protobuf writes it: by the numbers of the fields.
struct BareTensor {
  onnx::TensorProto head;  // fields before raw_data
  onnx::TensorProto tail;  // those behind it, and unknown ones

  BareTensor() = default;
  explicit BareTensor(const onnx::TensorProto& tensor);
};

// Appends the tensor with other data; afterwards `bare` is as it was.
void append_tensor(BareTensor& bare, const TensorData& data, ModelText& out);

// Appends it with data fields that stay in the file that the model was loaded from.
void append_tensor(const BareTensor& bare, std::span<const WirePiece> data, ModelText& out);

// Appends a whole message, or the fields of one, as protobuf writes it.
void append_message(const google::protobuf::MessageLite& message, ModelText& out);

}  // namespace onnx_external
