#include "onnx/external_data.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

struct Entries {
  std::optional<std::string> location;
  std::optional<std::string> offset;
  std::optional<std::string> length;
  std::optional<std::string> checksum;
};

std::optional<std::string>* entry_named(Entries& entries, std::string_view key) {
  if (key == "location") {
    return &entries.location;
  }
  if (key == "offset") {
    return &entries.offset;
  }
  if (key == "length") {
    return &entries.length;
  }
  return key == "checksum" ? &entries.checksum : nullptr;
}

Result<Entries> collect_entries(const onnx::TensorProto& tensor) {
  Entries entries;
  for (const auto& pair : tensor.external_data()) {
    std::optional<std::string>* entry = entry_named(entries, pair.key());
    if (entry == nullptr) {
      return fail(ErrorCode::kCorrupt, "external_data has the unknown key " + quote(pair.key()));
    }
    if (entry->has_value()) {
      return fail(ErrorCode::kCorrupt, "external_data has the key " + quote(pair.key()) + " twice");
    }
    *entry = pair.value();
  }
  return entries;
}

Result<std::uint64_t> number(const std::string& text, std::string_view key) {
  const std::optional<std::uint64_t> value = parse_decimal(text);
  if (!value) {
    return fail(ErrorCode::kCorrupt, "external_data " + std::string(key) + " " + quote(text) +
                                         " is no plain decimal number");
  }
  return *value;
}

// The number of bytes by type and dims; a stated length must agree. For an element type that is
// newer than our table only the stated length is known.
Result<std::uint64_t> data_length(const ExternalTensor& tensor,
                                  const std::optional<std::string>& stated) {
  TRY(element_count(tensor.dims));
  Result<std::uint64_t> computed = onnx_nbytes(tensor.data_type, tensor.dims);
  if (!stated) {
    return computed;
  }
  TRY_ASSIGN(auto length, number(*stated, "length"));
  const bool newer_type = tensor.data_type > onnx::TensorProto::BFLOAT16;
  if (!computed && !newer_type) {
    return computed;
  }
  if (computed && length != *computed) {
    return fail(ErrorCode::kCorrupt, "external_data length is " + std::to_string(length) +
                                         ", but " + std::string(onnx_type_name(tensor.data_type)) +
                                         " " + shape_text(tensor.dims) + " takes " +
                                         std::to_string(*computed) + " bytes");
  }
  return length;
}

void add_entry(std::string_view key, std::string value, onnx::TensorProto& tensor) {
  auto* entry = tensor.add_external_data();
  entry->set_key(std::string(key));
  entry->set_value(std::move(value));
}

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  // For unsigned numbers from_chars accepts no sign, space or prefix.
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (error != std::errc{} || end != text.data() + text.size() || value > kMax) {
    return std::nullopt;
  }
  return value;
}

Result<ExternalTensor> read_external_entries(const onnx::TensorProto& tensor) {
  TRY_ASSIGN(auto entries, collect_entries(tensor));
  if (!entries.location || entries.location->empty()) {
    return fail(ErrorCode::kCorrupt, "external_data has no location");
  }
  ExternalTensor external;
  external.data_type = tensor.data_type();
  external.dims.assign(tensor.dims().begin(), tensor.dims().end());
  external.location = *entries.location;
  if (entries.offset) {
    TRY_ASSIGN(external.offset, number(*entries.offset, "offset"));
  }
  TRY_ASSIGN(external.length, data_length(external, entries.length));
  constexpr std::uint64_t kMaxEnd = std::numeric_limits<std::int64_t>::max();
  if (external.offset > kMaxEnd - std::min(external.length, kMaxEnd)) {
    return fail(ErrorCode::kCorrupt, "external_data offset + length passes 2^63-1");
  }
  return external;
}

void clear_tensor_data(onnx::TensorProto& tensor) {
  tensor.clear_segment();
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_string_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_raw_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

void write_external_entries(const ExternalRef& ref, onnx::TensorProto& tensor) {
  clear_tensor_data(tensor);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  add_entry("location", ref.location, tensor);
  add_entry("offset", std::to_string(ref.offset), tensor);
  add_entry("length", std::to_string(ref.length), tensor);
  if (!ref.checksum.empty()) {
    add_entry("checksum", ref.checksum, tensor);
  }
}

bool has_data(const onnx::TensorProto& tensor) {
  return tensor.external_data_size() > 0 || !tensor.raw_data().empty() ||
         tensor.float_data_size() > 0 || tensor.int32_data_size() > 0 ||
         tensor.string_data_size() > 0 || tensor.int64_data_size() > 0 ||
         tensor.double_data_size() > 0 || tensor.uint64_data_size() > 0 ||
         std::find(tensor.dims().begin(), tensor.dims().end(), 0) != tensor.dims().end();
}

}  // namespace onnx_external
