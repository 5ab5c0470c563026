#include "onnx/copy_field.h"

namespace onnx_external {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class FieldCopier {
 public:
  FieldCopier(const Message& from, const FieldDescriptor& field, Message& to)
      : from_(from), field_(field), to_(to) {}

  // Members of Reflection for one type of values.
  template <typename Get, typename Set, typename GetAt, typename Add>
  void copy(Get get, Set set, GetAt get_at, Add add) const {
    const Reflection& source = *from_.GetReflection();
    const Reflection& target = *to_.GetReflection();
    if (!field_.is_repeated()) {
      (target.*set)(&to_, &field_, (source.*get)(from_, &field_));
      return;
    }
    const int count = source.FieldSize(from_, &field_);
    for (int i = 0; i < count; ++i) {
      (target.*add)(&to_, &field_, (source.*get_at)(from_, &field_, i));
    }
  }

  void copy_messages() const {
    const Reflection& source = *from_.GetReflection();
    const Reflection& target = *to_.GetReflection();
    if (!field_.is_repeated()) {
      target.MutableMessage(&to_, &field_)->CopyFrom(source.GetMessage(from_, &field_));
      return;
    }
    const int count = source.FieldSize(from_, &field_);
    for (int i = 0; i < count; ++i) {
      target.AddMessage(&to_, &field_)->CopyFrom(source.GetRepeatedMessage(from_, &field_, i));
    }
  }

 private:
  const Message& from_;
  const FieldDescriptor& field_;
  Message& to_;
};

}  // namespace

void copy_field(const Message& from, const FieldDescriptor& field, Message& to) {
  using R = Reflection;
  const FieldCopier copier(from, field, to);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return copier.copy(&R::GetInt32, &R::SetInt32, &R::GetRepeatedInt32, &R::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return copier.copy(&R::GetInt64, &R::SetInt64, &R::GetRepeatedInt64, &R::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return copier.copy(&R::GetUInt32, &R::SetUInt32, &R::GetRepeatedUInt32, &R::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return copier.copy(&R::GetUInt64, &R::SetUInt64, &R::GetRepeatedUInt64, &R::AddUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return copier.copy(&R::GetFloat, &R::SetFloat, &R::GetRepeatedFloat, &R::AddFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return copier.copy(&R::GetDouble, &R::SetDouble, &R::GetRepeatedDouble, &R::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return copier.copy(&R::GetBool, &R::SetBool, &R::GetRepeatedBool, &R::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return copier.copy(&R::GetEnumValue, &R::SetEnumValue, &R::GetRepeatedEnumValue,
                         &R::AddEnumValue);
    case FieldDescriptor::CPPTYPE_STRING:
      return copier.copy(&R::GetString, &R::SetString, &R::GetRepeatedString, &R::AddString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return copier.copy_messages();
  }
}

}  // namespace onnx_external
