// Copies single fields of messages, whatever schema their classes were made from.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace onnx_external {

// Gives `to` the value that a field of `from` has. Requires: the field is set there, and not set,
// or empty, in `to`; both are of one type.
void copy_field(const google::protobuf::Message& from,
                const google::protobuf::FieldDescriptor& field, google::protobuf::Message& to);

}  // namespace onnx_external
