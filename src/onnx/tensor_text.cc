#include "onnx/tensor_text.h"

#include "onnx/external_data.h"

namespace onnx_external {
namespace {

void append_raw_data_header(std::uint64_t bytes, ModelText& out) {
  out.add_by([&](std::string& text) { onnx_external::append_raw_data_header(text, bytes); });
}

}  // namespace

BareTensor::BareTensor(const onnx::TensorProto& tensor) : tail(tensor) {
  clear_tensor_data(tail);
  head.mutable_dims()->Swap(tail.mutable_dims());
  if (tail.has_data_type()) {
    head.set_data_type(tail.data_type());
    tail.clear_data_type();
  }
  if (tail.has_name()) {
    head.set_name(tail.name());
    tail.clear_name();
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
    out.add_gap({ModelSegment::From::kDeferred, deferred.number, 0, deferred.length});
  }
  append_message(bare.tail, out);
  clear_tensor_data(bare.tail);
}

void append_tensor(const BareTensor& bare, std::span<const WireSegment> data, ModelText& out) {
  append_message(bare.head, out);
  for (const WireSegment& segment : data) {
    out.add_gap({ModelSegment::From::kModelFile, 0, segment.begin, segment.end - segment.begin});
  }
  append_message(bare.tail, out);
}

void append_message(const google::protobuf::MessageLite& message, ModelText& out) {
  out.add_by([&](std::string& text) { message.AppendPartialToString(&text); });
}

}  // namespace onnx_external
