#include "onnx/added_initializers.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

Error other_tensor(const std::string& name) {
  return {ErrorCode::kMismatch, "initializer " + quote(name) +
                                    ": its type or shape in the model differs from that of the "
                                    "added tensor with this name"};
}

// Gives the initializer the data of `tensor`.
Status fill(const onnx::TensorProto& tensor, onnx::TensorProto& initializer) {
  if (initializer.data_type() != tensor.data_type() ||
      !std::equal(initializer.dims().begin(), initializer.dims().end(), tensor.dims().begin(),
                  tensor.dims().end())) {
    return fail(other_tensor(tensor.name()));
  }
  initializer.clear_float_data();
  initializer.clear_int32_data();
  initializer.clear_string_data();
  initializer.clear_int64_data();
  initializer.clear_raw_data();
  initializer.clear_double_data();
  initializer.clear_uint64_data();
  initializer.clear_external_data();
  initializer.clear_data_location();
  onnx::TensorProto data = tensor;
  data.clear_name();
  data.clear_data_type();
  data.clear_dims();
  initializer.MergeFrom(data);
  return {};
}

// An input or value of the graph may leave its type and dimensions open.
bool fits(const onnx::ValueInfoProto& value, const onnx::TensorProto& tensor) {
  const onnx::TypeProto::Tensor& type = value.type().tensor_type();
  if (type.elem_type() != 0 && type.elem_type() != tensor.data_type()) {
    return false;
  }
  const auto& dims = type.shape().dim();
  return !type.has_shape() ||
         std::equal(dims.begin(), dims.end(), tensor.dims().begin(), tensor.dims().end(),
                    [](const onnx::TensorShapeProto::Dimension& stated, std::int64_t dim) {
                      return !stated.has_dim_value() || stated.dim_value() == dim;
                    });
}

Status check_stated(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
                    const AddedInitializers& added) {
  for (const onnx::ValueInfoProto& value : values) {
    const auto found = added.find(value.name());
    if (found != added.end() && !fits(value, found->second)) {
      return fail(other_tensor(value.name()));
    }
  }
  return {};
}

}  // namespace

Status put_initializers(const AddedInitializers& added, onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  TRY(check_stated(graph.input(), added));
  TRY(check_stated(graph.value_info(), added));
  std::set<std::string_view> filled;
  for (onnx::TensorProto& initializer : *graph.mutable_initializer()) {
    if (const auto found = added.find(initializer.name()); found != added.end()) {
      TRY(fill(found->second, initializer));
      filled.insert(found->first);
    }
  }
  for (const auto& [name, tensor] : added) {
    if (!filled.contains(name)) {
      *graph.add_initializer() = tensor;
    }
  }
  constexpr std::int64_t kFreeInitializers = 4;  // before, each initializer was an input
  for (int i = graph.input_size(); model.ir_version() >= kFreeInitializers && i-- > 0;) {
    if (added.contains(graph.input(i).name())) {
      graph.mutable_input()->DeleteSubrange(i, 1);
    }
  }
  return {};
}

}  // namespace onnx_external
