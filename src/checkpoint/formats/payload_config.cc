#include "checkpoint/formats/payload_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/bad_input.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kStrided = 7;  // schema.py, Layout

struct ScalarType {
  std::uint64_t number;
  DType dtype;
};
// schema.py, ScalarType: not c10's numbers.
constexpr std::array kScalarTypes = {
    ScalarType{1, DType::kUInt8},           ScalarType{2, DType::kInt8},
    ScalarType{3, DType::kInt16},           ScalarType{4, DType::kInt32},
    ScalarType{5, DType::kInt64},           ScalarType{6, DType::kFloat16},
    ScalarType{7, DType::kFloat32},         ScalarType{8, DType::kFloat64},
    ScalarType{9, DType::kComplex32},       ScalarType{10, DType::kComplex64},
    ScalarType{11, DType::kComplex128},     ScalarType{12, DType::kBool},
    ScalarType{13, DType::kBFloat16},       ScalarType{28, DType::kUInt16},
    ScalarType{29, DType::kFloat8E4M3Fn},   ScalarType{30, DType::kFloat8E5M2},
    ScalarType{31, DType::kFloat8E4M3FnUz}, ScalarType{32, DType::kFloat8E5M2FnUz},
};

// Reads a size such as {"as_int": 3}. The form {"as_expr": ...} means a symbolic size.
Result<std::int64_t> sym_int(const Json* json) {
  const JsonObject* object = json == nullptr ? nullptr : json->object();
  if (object != nullptr && json->find("as_expr") != nullptr) {
    return unsupported("its shape is symbolic");
  }
  const Json* value = object == nullptr ? nullptr : json->find("as_int");
  const std::uint64_t* number = value == nullptr ? nullptr : value->uint();
  if (number == nullptr || std::cmp_greater(*number, std::numeric_limits<std::int64_t>::max())) {
    return corrupt("a size, stride or offset is not {\"as_int\": N}");
  }
  return static_cast<std::int64_t>(*number);
}

Result<std::vector<std::int64_t>> sym_ints(const Json* json) {
  const JsonArray* array = json == nullptr ? nullptr : json->array();
  if (array == nullptr || array->size() > kMaxRank) {
    return corrupt("sizes or strides are not a list of at most " + std::to_string(kMaxRank));
  }
  std::vector<std::int64_t> values;
  for (const Json& element : *array) {
    TRY_ASSIGN(const auto value, sym_int(&element));
    values.push_back(value);
  }
  return values;
}

Result<DType> scalar_type(const Json* json) {
  const std::uint64_t* number = json == nullptr ? nullptr : json->uint();
  if (number == nullptr) {
    return corrupt("its dtype is not a number");
  }
  const auto found = std::find_if(kScalarTypes.begin(), kScalarTypes.end(),
                                  [&](const ScalarType& known) { return known.number == *number; });
  if (found == kScalarTypes.end()) {
    return unsupported("element type number " + std::to_string(*number) + " is not supported");
  }
  return found->dtype;
}

Result<TensorDeclaration> tensor_meta(const Json& meta) {
  if (meta.object() == nullptr) {
    return corrupt("it has no tensor_meta");
  }
  const Json* layout = meta.find("layout");
  const std::uint64_t* number = layout == nullptr ? nullptr : layout->uint();
  if (number == nullptr) {
    return corrupt("its layout is not a number");
  }
  if (*number != kStrided) {
    return unsupported("its layout (number " + std::to_string(*number) + ") is not strided");
  }
  TRY_ASSIGN(const auto dtype, scalar_type(meta.find("dtype")));
  auto shape = sym_ints(meta.find("sizes"));
  TRY_ASSIGN(auto strides, shape ? sym_ints(meta.find("strides")) : shape);
  TRY_ASSIGN(const auto offset, sym_int(meta.find("storage_offset")));
  TensorDeclaration tensor;
  tensor.dtype = dtype;
  tensor.shape = *std::move(shape);
  tensor.strides = std::move(strides);
  tensor.offset = offset;
  return tensor;
}

Result<Payload> parse_payload(const std::string& name, const Json& json) {
  Payload payload;
  payload.name = name;
  const Json* path = json.object() == nullptr ? nullptr : json.find("path_name");
  const Json* use_pickle = json.object() == nullptr ? nullptr : json.find("use_pickle");
  const bool* pickled = use_pickle == nullptr ? nullptr : std::get_if<bool>(&use_pickle->value);
  if (path == nullptr || path->string() == nullptr || pickled == nullptr) {
    return corrupt("it has no path_name or no use_pickle");
  }
  payload.record = *path->string();
  payload.pickled = *pickled;
  if (payload.pickled) {
    return payload;
  }
  const Json nothing;
  const Json* meta = json.find("tensor_meta");
  auto tensor = tensor_meta(meta == nullptr ? nothing : *meta);
  if (tensor) {
    payload.tensor = *std::move(tensor);
  } else if (tensor.error().code == ErrorCode::kUnsupported) {
    payload.refusal = std::move(tensor).error().message;
  } else {
    return fail(std::move(tensor).error());
  }
  return payload;
}

}  // namespace

Result<std::vector<Payload>> parse_payload_config(std::string_view text) {
  TRY_ASSIGN(const auto json, parse_json(text));
  const Json* config = json.object() == nullptr ? nullptr : json.find("config");
  if (config == nullptr || config->object() == nullptr) {
    return corrupt("it has no object 'config'");
  }
  std::vector<Payload> payloads;
  for (const auto& [name, value] : *config->object()) {
    TRY_ASSIGN_IN("tensor " + quote(name), auto payload, parse_payload(name, value));
    payloads.push_back(std::move(payload));
  }
  return payloads;
}

}  // namespace onnx_external
