#include "onnx/tensor_text.h"

#include <vector>

#include "onnx/copy_field.h"
#include "onnx/external_data.h"

namespace onnx_external {
namespace {

bool says_data(int field) {
  switch (field) {
    case onnx::TensorProto::kSegmentFieldNumber:
    case onnx::TensorProto::kFloatDataFieldNumber:
    case onnx::TensorProto::kInt32DataFieldNumber:
    case onnx::TensorProto::kStringDataFieldNumber:
    case onnx::TensorProto::kInt64DataFieldNumber:
    case onnx::TensorProto::kRawDataFieldNumber:
    case onnx::TensorProto::kDoubleDataFieldNumber:
    case onnx::TensorProto::kUint64DataFieldNumber:
    case onnx::TensorProto::kExternalDataFieldNumber:
    case onnx::TensorProto::kDataLocationFieldNumber:
      return true;
    default:
      return false;
  }
}

void append_raw_data_header(std::uint64_t bytes, ModelText& out) {
  out.add_by([&](std::string& text) { onnx_external::append_raw_data_header(text, bytes); });
}

}  // namespace

BareTensor::BareTensor(const onnx::TensorProto& tensor) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  tensor.GetReflection()->ListFields(tensor, &fields);
  for (const auto* field : fields) {
    if (!says_data(field->number())) {
      copy_field(tensor, *field, field->number() < kRawData ? head : tail);
    }
  }
  const auto& unknown = tensor.GetReflection()->GetUnknownFields(tensor);
  if (!unknown.empty()) {
    tail.GetReflection()->MutableUnknownFields(&tail)->MergeFrom(unknown);
  }
}

void append_tensor(BareTensor& bare, const TensorData& data, ModelText& out) {
  append_message(bare.head, out);
  if (const auto* ref = std::get_if<ExternalRef>(&data)) {
    write_external_entries(*ref, bare.tail);
  } else if (const auto* raw = std::get_if<std::string>(&data)) {
    append_raw_data_header(raw->size(), out);
    out.add(*raw);
  } else {
    const auto& deferred = std::get<DeferredBytes>(data);
    append_raw_data_header(deferred.length, out);
    out.add_gap({ModelPiece::From::kDeferred, deferred.number, 0, deferred.length});
  }
  append_message(bare.tail, out);
  clear_tensor_data(bare.tail);
}

void append_tensor(const BareTensor& bare, std::span<const WirePiece> data, ModelText& out) {
  append_message(bare.head, out);
  for (const WirePiece& piece : data) {
    out.add_gap({ModelPiece::From::kGiven, 0, piece.begin, piece.end - piece.begin});
  }
  append_message(bare.tail, out);
}

void append_message(const google::protobuf::MessageLite& message, ModelText& out) {
  out.add_by([&](std::string& text) { message.AppendPartialToString(&text); });
}

}  // namespace onnx_external
