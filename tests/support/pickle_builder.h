// Writes pickles opcode by opcode, and complete torch checkpoints from a list of tensors.
//
//   std::string file = torch_zip({{.name = "fc.weight", .shape = {2, 3}, .bytes = f32({...})}});
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/dtype.h"
#include "onnx_external/tensor.h"
#include "support/zip_builder.h"

namespace onnx_external {

// Each member appends one opcode (or a short fixed sequence) and returns the builder.
class PickleBuilder {
 public:
  PickleBuilder& op(char opcode) { return raw(std::string_view(&opcode, 1)); }
  PickleBuilder& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  PickleBuilder& proto(int version = 2) { return op('\x80').op(static_cast<char>(version)); }
  PickleBuilder& global(std::string_view module, std::string_view name) {
    return op('c').raw(module).op('\n').raw(name).op('\n');
  }
  PickleBuilder& string(std::string_view text) {
    op('X');
    put_le(bytes_, text.size(), 4);
    return raw(text);
  }
  PickleBuilder& integer(std::int64_t value) {
    op('\x8a').op('\x08');  // LONG1, 8 bytes
    put_le(bytes_, static_cast<std::uint64_t>(value), 8);
    return *this;
  }
  PickleBuilder& integers(const std::vector<std::int64_t>& values) {  // a tuple
    mark();
    for (const std::int64_t value : values) {
      integer(value);
    }
    return tuple();
  }
  PickleBuilder& boolean(bool value) { return op(value ? '\x88' : '\x89'); }
  PickleBuilder& none() { return op('N'); }
  PickleBuilder& mark() { return op('('); }
  PickleBuilder& tuple() { return op('t'); }  // from the mark
  PickleBuilder& empty_tuple() { return op(')'); }
  PickleBuilder& empty_dict() { return op('}'); }
  PickleBuilder& empty_list() { return op(']'); }
  PickleBuilder& set_items() { return op('u'); }
  PickleBuilder& append_items() { return op('e'); }
  PickleBuilder& reduce() { return op('R'); }
  PickleBuilder& build() { return op('b'); }
  PickleBuilder& new_object() { return op('\x81'); }
  PickleBuilder& persistent_id() { return op('Q'); }
  PickleBuilder& put(std::uint32_t index) {
    op('r');
    put_le(bytes_, index, 4);
    return *this;
  }
  PickleBuilder& get(std::uint32_t index) {
    op('j');
    put_le(bytes_, index, 4);
    return *this;
  }
  PickleBuilder& ordered_dict() {
    return global("collections", "OrderedDict").empty_tuple().reduce();
  }
  PickleBuilder& stop() { return op('.'); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Returns the storage class that torch pickles for a type, or "" for types that exist only in an
// UntypedStorage.
inline std::string storage_class(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "DoubleStorage";
    case DType::kFloat32:
      return "FloatStorage";
    case DType::kFloat16:
      return "HalfStorage";
    case DType::kBFloat16:
      return "BFloat16Storage";
    case DType::kInt64:
      return "LongStorage";
    case DType::kInt32:
      return "IntStorage";
    case DType::kInt16:
      return "ShortStorage";
    case DType::kInt8:
      return "CharStorage";
    case DType::kUInt8:
      return "ByteStorage";
    case DType::kBool:
      return "BoolStorage";
    case DType::kComplex64:
      return "ComplexFloatStorage";
    case DType::kComplex128:
      return "ComplexDoubleStorage";
    default:
      return "";
  }
}

struct TestTensor {
  std::string name = {};
  DType dtype = DType::kFloat32;
  Shape shape = {};
  std::string bytes = {};                                 // of the whole storage
  std::optional<std::vector<std::int64_t>> strides = {};  // in elements; row-major by default
  std::int64_t offset = 0;                                // elements
  std::optional<std::string> shares =
      {};  // an earlier tensor; this one views its storage, and `bytes` is unused
};

struct TorchZipOptions {
  std::string prefix = "archive";
  std::string byte_order = "little";  // "" = no record
  std::string nested_in = {};         // {"<nested_in>": {...}, "epoch": 3} instead of {...}
  bool deflated = false;              // the storages
  bool with_crc = true;
};

// Appends the persistent id and the rebuild call of a tensor whose storage has `storage_bytes`
// bytes.
inline void put_tensor(PickleBuilder& pickle, const TestTensor& tensor, const std::string& key,
                       std::uint64_t storage_bytes) {
  const std::string typed = storage_class(tensor.dtype);
  pickle.global("torch._utils", typed.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage");
  if (typed.empty()) {
    pickle.global("torch.storage", "UntypedStorage");
  } else {
    pickle.global("torch", typed);
  }
  const std::uint64_t unit = typed.empty() ? 1 : byte_size(tensor.dtype);
  pickle.string(key).string("cpu").integer(static_cast<std::int64_t>(storage_bytes / unit));
  pickle.tuple().persistent_id().integer(tensor.offset).integers(tensor.shape);
  pickle.integers(tensor.strides.value_or(contiguous_strides(tensor.shape)));
  pickle.boolean(false).ordered_dict();
  if (typed.empty()) {
    pickle.global("torch", torch_name(tensor.dtype));
  }
  pickle.tuple().reduce();
}

// Returns the data.pkl of an OrderedDict of `tensors`.
inline std::string state_dict_pickle(const std::vector<TestTensor>& tensors,
                                     const std::string& nested_in = "") {
  PickleBuilder pickle;
  pickle.proto();
  if (!nested_in.empty()) {
    pickle.empty_dict().mark().string("epoch").integer(3).string(nested_in);
  }
  pickle.ordered_dict().mark();
  std::map<std::string, std::pair<std::string, std::uint64_t>> storages;  // name -> key, bytes
  for (const TestTensor& tensor : tensors) {
    auto storage = tensor.shares ? storages.at(*tensor.shares)
                                 : std::pair(std::to_string(storages.size()),
                                             std::uint64_t{tensor.bytes.size()});
    pickle.string(tensor.name);
    put_tensor(pickle, tensor, storage.first, storage.second);
    if (!tensor.shares) {
      storages.emplace(tensor.name, storage);
    }
  }
  pickle.set_items();
  if (!nested_in.empty()) {
    pickle.set_items();
  }
  return pickle.stop().bytes();
}

// Returns a complete checkpoint file, as torch.save(OrderedDict of tensors) writes it.
inline std::string torch_zip(const std::vector<TestTensor>& tensors,
                             const TorchZipOptions& options = {}) {
  ZipBuilder zip;
  auto add = [&](const std::string& name, const std::string& data, bool deflated) {
    ZipRecord record{.name = options.prefix + "/" + name, .data = data, .deflated = deflated};
    if (!options.with_crc) {
      record.central_lie = [](ZipFields& fields) { fields.crc = 0; };
    }
    zip.add(record);
  };
  add("data.pkl", state_dict_pickle(tensors, options.nested_in), false);
  if (!options.byte_order.empty()) {
    add("byteorder", options.byte_order, false);
  }
  std::size_t key = 0;
  for (const TestTensor& tensor : tensors) {
    if (!tensor.shares) {
      add("data/" + std::to_string(key++), tensor.bytes, options.deflated);
    }
  }
  add("version", "3\n", false);
  return zip.finish();
}

// Returns the bytes of values in the byte order of this machine, which is also that of the
// checkpoints.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
inline std::string f32(const std::vector<float>& values) {
  return bytes_of(values);
}

}  // namespace onnx_external
