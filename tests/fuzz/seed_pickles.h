// Makes pickles of valid checkpoints, one for each kind of value.
#pragma once

#include <string>
#include <string_view>

#include "support/legacy_builder.h"
#include "support/value_builder.h"

namespace onnx_external {

// Over the records of values_file(): int64 x 3, int64 x 3, float32 x 2, float64 x 3.
// One tensor of each kind over the records of values_file().
inline std::string values_pickle() {
  PickleBuilder pickle;
  pickle.proto().ordered_dict().mark().string("w");
  put_whole(pickle, DType::kFloat32, {2, 3}, 0);
  pickle.string("c");
  put_whole(pickle, DType::kComplex32, {6}, 1);
  pickle.string("q");
  begin_quantized(pickle, "QInt8Storage", 24);
  put_quantizer(pickle, 0.5, 1);
  end_quantized(pickle);
  pickle.string("p");
  pickle.global("torch._utils", "_rebuild_qtensor").mark();
  pickle.mark().string("storage").global("torch", "QUInt8Storage").string("0").string("cpu");
  pickle.integer(24).tuple().persistent_id().integer(0).integers({3, 8}).integers({8, 1});
  pickle.mark().global("torch", "per_channel_affine");
  put_whole(pickle, DType::kFloat64, {3}, 3);
  put_whole(pickle, DType::kInt64, {3}, 0);
  pickle.integer(0).tuple();
  end_quantized(pickle);
  const TestTensor indices{.dtype = DType::kInt64, .shape = {1, 3}, .bytes = std::string(24, ' ')};
  const TestTensor values{.shape = {3}, .bytes = std::string(24, ' ')};
  pickle.string("coo");
  put_sparse(pickle, {.parts = {indices, values}, .size = {6}});
  const TestTensor compressed{.dtype = DType::kInt64, .shape = {3}, .bytes = indices.bytes};
  const TestTensor plain{.dtype = DType::kInt64, .shape = {2}, .bytes = indices.bytes};
  const TestTensor two{.shape = {2}, .bytes = std::string(8, ' ')};
  pickle.string("csr");
  put_sparse(pickle, {.layout = "sparse_csr", .parts = {compressed, plain, two}, .size = {2, 3}});
  pickle.string("n");
  put_array(pickle, {.shape = {2}, .bytes = f32({1, 2})});
  pickle.string("b").global("torch._utils", "_rebuild_tensor").mark();
  pickle.global("torch.storage", "_load_from_bytes").mark();
  put_bytes(pickle, legacy_storage_file(f32({1, 2})));
  pickle.tuple().reduce().integer(0).integers({2}).integers({1}).tuple().reduce();
  return pickle.set_items().stop().bytes();
}

// Appends _rebuild_parameter or a similar call around one tensor.
inline void put_wrapped(PickleBuilder& pickle, std::string_view module, std::string_view name,
                        bool with_state) {
  pickle.global(module, name).mark();
  put_tensor(pickle, {.shape = {2}}, "2", 8);
  pickle.boolean(true).ordered_dict();
  if (with_state) {
    pickle.empty_dict();
  }
  pickle.tuple().reduce();
}

inline std::string wrapped_pickle() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("p");
  put_wrapped(pickle, "torch._utils", "_rebuild_parameter", false);
  pickle.string("s");
  put_wrapped(pickle, "torch._utils", "_rebuild_parameter_with_state", true);
  pickle.string("t").global("torch._tensor", "_rebuild_from_type_v2").mark();
  pickle.global("torch._utils", "_rebuild_tensor_v2").global("torch", "Tensor").mark().mark();
  pickle.string("storage").global("torch", "FloatStorage").string("2").string("cpu").integer(2);
  pickle.tuple().persistent_id().integer(0).integers({2}).integers({1}).boolean(false);
  pickle.ordered_dict().tuple().empty_dict().string("conj").boolean(true).op('s').tuple().reduce();
  pickle.string("d").global("torch._utils", "_rebuild_device_tensor_from_numpy").mark();
  put_array(pickle, {.shape = {2}, .bytes = f32({1, 2})});
  pickle.global("torch", "float32").string("xla:0").boolean(false).tuple().reduce();
  pickle.string("c").global("torch._utils", "_rebuild_device_tensor_from_cpu_tensor").mark();
  put_tensor(pickle, {.shape = {2}}, "2", 8);
  pickle.global("torch", "float32").string("mps").boolean(false).tuple().reduce();
  return pickle.set_items().stop().bytes();
}

// A call of torchao that makes a tensor from those in its state, which `put_state` appends.
template <typename PutState>
void put_wrapper(PickleBuilder& pickle, std::string_view name, const PutState& put_state) {
  pickle.global("torch._tensor", "_rebuild_from_type_v2").mark();
  pickle.global("torch._utils", "_rebuild_wrapper_subclass").global("torchao.dtypes", name).mark();
  pickle.global("torchao.dtypes", name).global("torch", "bfloat16").integers({2, 3});
  pickle.integers({3, 1}).tuple().empty_dict().mark();
  put_state();
  pickle.set_items().tuple().reduce();
}

// Six codes with the scales of two rows, under the names of a class or of HQQ.
inline void put_codes(PickleBuilder& pickle, DType dtype, std::string_view codes) {
  put_tensor(pickle.string(codes), {.dtype = dtype, .shape = {2, 3}}, "0", 24);
  put_tensor(pickle.string("scale"), {.shape = {2, 1}}, "2", 8);
}

inline std::string torchao_pickle() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("a.weight");
  put_wrapper(pickle, "Int8Tensor", [&] { put_codes(pickle, DType::kInt8, "qdata"); });
  pickle.string("b.weight");
  put_wrapper(pickle, "AffineQuantizedTensor", [&] {
    pickle.string("zero_point_domain").global("torchao.dtypes", "ZeroPointDomain").mark();
    pickle.integer(1).tuple().reduce().string("tensor_impl");
    put_wrapper(pickle, "PlainAQTTensorImpl", [&] {
      put_codes(pickle, DType::kInt8, "int_data");
      put_tensor(pickle.string("zero_point"), {.dtype = DType::kInt64, .shape = {2, 1}}, "1", 24);
    });
  });
  return pickle.set_items().stop().bytes();
}

// Modules of HQQ: one as today, and one as before 0.2 with scales that are quantized themselves.
inline std::string hqq_pickle() {
  PickleBuilder pickle;
  const auto put_settings = [&] {
    pickle.string("packing").string("8bit_u8").string("axis").integer(1).string("group_size");
    pickle.integer(3).string("shape").global("torch", "Size").mark().integers({2, 3}).tuple();
    put_tensor(pickle.reduce().string("zero"), {.shape = {2, 1}}, "2", 8);
  };
  pickle.proto().empty_dict().mark().string("a").empty_dict().mark();
  put_codes(pickle, DType::kUInt8, "W_q");
  put_settings();
  pickle.set_items().string("b").empty_dict().mark().string("W_q");
  put_tensor(pickle, {.dtype = DType::kUInt8, .shape = {2, 3}}, "0", 24);
  pickle.string("meta").empty_dict().mark();
  put_settings();
  pickle.string("quant_scale").boolean(true).string("scale_q");
  put_tensor(pickle, {.dtype = DType::kUInt8, .shape = {2, 1}}, "0", 24);
  pickle.string("meta_scale").empty_dict().mark().string("axis").integer(0).string("scale");
  put_tensor(pickle, {.shape = {1}}, "2", 8);
  put_tensor(pickle.string("zero"), {.shape = {1}, .offset = 1}, "2", 8);
  return pickle.set_items().set_items().set_items().set_items().stop().bytes();
}

// Arrays in all forms: Fortran order, big-endian, text of protocol 2, a scalar, a buffer.
inline std::string arrays_pickle() {
  PickleBuilder pickle;
  pickle.proto(4).empty_dict().mark().string("f");
  put_array(pickle, {.shape = {2, 1}, .fortran = true, .bytes = f32({1, 2})});
  pickle.string("b");
  put_array(pickle, {.type = "i8", .order = ">", .shape = {1}, .bytes = std::string(8, '\x01')},
            "numpy._core.multiarray");
  pickle.string("h");
  put_array(pickle, {.type = "f2", .shape = {2}, .bytes = "abcd"});
  pickle.string("t").global("numpy.core.multiarray", "_reconstruct").mark();
  pickle.global("numpy", "ndarray").integers({0}).global("_codecs", "encode").mark().string("b");
  pickle.string("latin1").tuple().reduce().tuple().reduce().mark().integer(1).integers({2});
  put_array_type(pickle, {.type = "u1", .order = "|"});
  pickle.boolean(false).global("_codecs", "encode").mark().string("\xc3\xa9z").string("latin1");
  pickle.tuple().reduce().tuple().build();
  pickle.string("s").global("numpy.core.multiarray", "scalar").mark();
  put_array_type(pickle, {.type = "f8"});
  put_bytes(pickle, std::string(8, '\0'));
  pickle.tuple().reduce().string("u").global("numpy.core.numeric", "_frombuffer").mark();
  put_bytes(pickle, f32({1, 2}));
  put_array_type(pickle, {});
  pickle.integers({2}).string("C").tuple().reduce();
  return pickle.set_items().stop().bytes();
}

inline std::string sparse_pickle(const std::string& layout) {
  const bool blocks = layout.starts_with("sparse_bs");
  const bool by_columns = layout.ends_with("c");
  PickleBuilder pickle;
  pickle.proto().empty_dict().string("w").global("torch._utils", "_rebuild_sparse_tensor").mark();
  pickle.global("torch.serialization", "_get_layout").mark().string("torch." + layout).tuple();
  pickle.reduce().mark();
  put_whole(pickle, DType::kInt64, {3}, 0);
  put_whole(pickle, DType::kInt64, {2}, 1);
  put_whole(pickle, DType::kFloat32, blocks ? Shape{2, 1, 1} : Shape{2}, 2);
  return pickle.integers(by_columns ? Shape{3, 2} : Shape{2, 3})
      .tuple()
      .tuple()
      .reduce()
      .op('s')
      .stop()
      .bytes();
}

// Modules as torch.save(model) writes them: objects with _parameters, _buffers and _modules.
inline std::string module_pickle() {
  PickleBuilder pickle;
  const auto dict = [&](std::string_view name) -> PickleBuilder& {
    return pickle.string(name).ordered_dict();
  };
  pickle.proto().global("torch.nn.modules.linear", "Linear").empty_tuple().new_object();
  pickle.empty_dict().mark().string("training").boolean(true);
  dict("_parameters").mark().string("weight");
  put_wrapped(pickle, "torch._utils", "_rebuild_parameter", false);
  pickle.string("bias").none().set_items();
  dict("_buffers").mark().string("b");
  put_tensor(pickle, {.shape = {2}}, "2", 8);
  pickle.string("gone");
  put_tensor(pickle, {.shape = {2}}, "2", 8);
  pickle.set_items().string("_non_persistent_buffers_set").global("__builtin__", "set").mark();
  pickle.empty_list().string("gone").op('a').tuple().reduce();
  dict("_modules").string("child").global("a", "B").empty_tuple().new_object().empty_dict().mark();
  dict("_parameters").string("_buffers").ordered_dict();
  return pickle.set_items().build().op('s').set_items().build().stop().bytes();
}

// The recorded inputs of a model: (args, kwargs).
inline std::string inputs_pickle() {
  PickleBuilder pickle;
  pickle.proto().mark().mark();
  put_tensor(pickle, {.shape = {2}}, "2", 8);
  pickle.integer(3).boolean(true).none().op('G').raw(std::string(8, '\1')).tuple();
  pickle.empty_dict().string("past").global("transformers.cache_utils", "DynamicCache");
  pickle.empty_tuple().new_object().empty_dict().mark();
  for (const char* name : {"key_cache", "value_cache"}) {
    pickle.string(name).empty_list();
    put_tensor(pickle, {.shape = {2}}, "2", 8);
    pickle.op('a');
  }
  return pickle.set_items().build().op('s').tuple().stop().bytes();
}

// All opcodes of protocols 0, 1, 3, 4 and 5 that no other seed has.
inline std::string opcodes_pickle() {
  PickleBuilder pickle;
  pickle.op('(').raw("I01\nI00\nI-7\nL12L\nF1.5\nS'a\\x41\\n'\nVb\\u00e9\\U0001F600\np3\ng3\n");
  pickle.op('(').op('l').op('p').raw("7\n").raw("(I1\nI2\nd").op('(').raw("ia\nB\n");
  pickle.op('(').raw("ca\nB\n").op('o').op('K').raw("\x05").op('M').raw("\x05\x01");
  pickle.op('J').raw("\xff\xff\xff\xff").op('\x8b').raw(std::string("\x01\0\0\0\x07", 5));
  pickle.op('\x8a').raw(std::string("\0", 1)).op('U').raw("\x01z");
  pickle.op('T').raw(std::string("\x01\0\0\0z", 5)).op('C').raw("\x01z").op('\x94');
  pickle.op('\x8c').raw("\x01z").op('q').raw("\x09").op('h').raw("\x09").op('2').op('0');
  pickle.op('\x8d').raw(std::string("\x01\0\0\0\0\0\0\0z", 9));
  pickle.op('\x8e').raw(std::string("\x01\0\0\0\0\0\0\0z", 9));
  pickle.op('\x96').raw(std::string("\x01\0\0\0\0\0\0\0z", 9));
  pickle.op('\x95').raw(std::string("\x02\0\0\0\0\0\0\0", 8)).op('(').op('1');
  pickle.op('\x8f').op('(').op('K').raw("\x01").op('\x90').op('(').op('\x91');
  pickle.string("a").string("B").op('\x93').empty_tuple().empty_dict().op('\x92');
  pickle.op('N').op('\x85').op('N').op('\x86').op('N').op('N').op('\x87');
  return pickle.op('t').stop().bytes();
}

// {"w": a tensor in a plain pickle}, whose storage is the bytes of a complete legacy file.
inline std::string plain_pickle() {
  PickleBuilder pickle;
  pickle.proto(4).empty_dict().string("w").global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.global("torch.storage", "_load_from_bytes").mark();
  put_bytes(pickle, legacy_storage_file(f32({1, 2})));
  pickle.tuple().reduce().integer(0).integers({2}).integers({1}).boolean(false).ordered_dict();
  return pickle.tuple().reduce().op('s').stop().bytes();
}

// A root that is a module with its source and a storage, in protocol 2, as in legacy files.
inline std::string legacy_module_pickle() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_legacy_tensor(pickle, "7", 4, 0, 4);
  pickle.string("m").mark().string("module").global("a", "B").string("a.py").string("class B:");
  pickle.tuple().persistent_id().empty_tuple().new_object();
  return pickle.set_items().stop().bytes();
}

// The object Net(table, scale, list of tensors) of a TorchScript archive, its constants and its
// code.
inline std::string script_pickle() {
  PickleBuilder pickle;
  pickle.proto().global("__torch__", "Net").empty_tuple().new_object().empty_dict().mark();
  for (const char* name : {"table", "scale"}) {
    pickle.string(name);
    put_tensor(pickle, {.shape = {4}}, "0", 16);
  }
  pickle.string("list").global("torch.jit._pickle", "restore_type_tag").mark();
  pickle.global("torch.jit._pickle", "build_tensorlist").mark().empty_list().mark();
  put_tensor(pickle, {.shape = {2}}, "0", 16);
  pickle.append_items().tuple().reduce().string("List[Tensor]").tuple().reduce();
  pickle.string("fc").global("__torch__", "Net").empty_tuple().new_object().empty_dict().mark();
  pickle.string("scale");
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  return pickle.set_items().build().set_items().build().stop().bytes();
}
inline std::string constants_pickle() {
  PickleBuilder pickle;
  pickle.proto().mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  put_tensor(pickle, {.shape = {2}, .offset = 2}, "0", 16);
  return pickle.tuple().stop().bytes();
}
inline constexpr std::string_view kScriptCode =
    "class Net(Module):\n  __parameters__ = [\"scale\", ]\n  __buffers__ = [\"table\", ]\n"
    "  table : Tensor\n  def forward(self: __torch__.Net) -> Tensor:\n    return x\n";

}  // namespace onnx_external
