// Writes pickles of tensors that are more than a view of a storage: quantized, sparse and numpy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/pickle_builder.h"

namespace onnx_external {

inline void put_float(PickleBuilder& pickle, double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  std::string raw;
  put_le(raw, __builtin_bswap64(bits), 8);
  pickle.op('G').raw(raw);
}

// Appends a tensor that spans the whole record data/<key>.
inline void put_whole(PickleBuilder& pickle, DType dtype, const Shape& shape, int key) {
  put_tensor(pickle, {.dtype = dtype, .shape = shape}, std::to_string(key),
             *contiguous_nbytes(dtype, shape));
}

// Appends a call of _rebuild_qtensor for `count` integers in data/0, up to the parameters of the
// quantizer. Append these next, then call end_quantized().
inline void begin_quantized(PickleBuilder& pickle, const std::string& storage, std::int64_t count) {
  pickle.global("torch._utils", "_rebuild_qtensor").mark();
  pickle.mark().string("storage").global("torch", storage).string("0").string("cpu");
  pickle.integer(count).tuple().persistent_id().integer(0).integers({count}).integers({1});
}
inline void end_quantized(PickleBuilder& pickle) {
  pickle.boolean(false).ordered_dict().tuple().reduce();
}

// (torch.per_tensor_affine, scale, zero point)
inline void put_quantizer(PickleBuilder& pickle, double scale, std::int64_t zero_point) {
  pickle.mark().global("torch", "per_tensor_affine");
  put_float(pickle, scale);
  pickle.integer(zero_point).tuple();
}

// The parts of a sparse tensor. Their bytes are in data/0, data/1, ...
struct SparseTest {
  std::string layout = "sparse_coo";
  std::vector<TestTensor> parts = {};  // indices (compressed, plain), values
  Shape size = {};

  [[nodiscard]] std::vector<std::string> storages() const {
    std::vector<std::string> all;
    for (const TestTensor& part : parts) {
      all.push_back(part.bytes);
    }
    return all;
  }
};

inline void put_sparse(PickleBuilder& pickle, const SparseTest& sparse) {
  pickle.global("torch._utils", "_rebuild_sparse_tensor").mark();
  pickle.global("torch.serialization", "_get_layout");
  pickle.mark().string("torch." + sparse.layout).tuple().reduce().mark();
  for (std::size_t i = 0; i < sparse.parts.size(); ++i) {
    put_tensor(pickle, sparse.parts[i], std::to_string(i), sparse.parts[i].bytes.size());
  }
  pickle.integers(sparse.size).tuple().tuple().reduce();
}

struct ArrayTest {
  std::string type = "f4";
  std::string order = "<";
  Shape shape = {};
  bool fortran = false;
  std::string bytes = {};  // as in protocol 3 and later
};

// numpy.dtype(type, False, True) with its state.
inline void put_array_type(PickleBuilder& pickle, const ArrayTest& array) {
  pickle.global("numpy", "dtype").mark().string(array.type).boolean(false).boolean(true).tuple();
  pickle.reduce().mark().integer(3).string(array.order).none().none().none();
  pickle.integer(-1).integer(-1).integer(0).tuple().build();
}

inline void put_bytes(PickleBuilder& pickle, std::string_view bytes) {
  std::string raw;
  put_le(raw, bytes.size(), 4);
  pickle.op('B').raw(raw).raw(bytes);
}

inline void put_array(PickleBuilder& pickle, const ArrayTest& array,
                      std::string_view core = "numpy.core.multiarray") {
  pickle.global(core, "_reconstruct").mark().global("numpy", "ndarray").integers({0});
  put_bytes(pickle, "b");
  pickle.tuple().reduce().mark().integer(1).integers(array.shape);
  put_array_type(pickle, array);
  pickle.boolean(array.fortran);
  put_bytes(pickle, array.bytes);
  pickle.tuple().build();
}

}  // namespace onnx_external
