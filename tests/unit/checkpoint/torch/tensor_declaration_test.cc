// How many arguments torch's rebuild functions take: the signatures of torch 1.13 and 2.13.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "support/torch_file.h"
#include "support/value_builder.h"

namespace onnx_external {
namespace {

using Put = std::function<void(PickleBuilder&)>;

struct Signature {
  const char* module;
  const char* function;
  std::size_t least;
  std::vector<Put> arguments;  // all that torch takes
};

void storage(PickleBuilder& pickle, const std::string& type, std::int64_t count) {
  pickle.mark().string("storage").global("torch", type).string("0").string("cpu");
  pickle.integer(count).tuple().persistent_id();
}
void floats(PickleBuilder& pickle) {
  storage(pickle, "FloatStorage", 4);
}
void bytes(PickleBuilder& pickle) {
  storage(pickle, "UntypedStorage", 16);
}
void quantized(PickleBuilder& pickle) {
  storage(pickle, "QInt8Storage", 16);
}
void zero(PickleBuilder& pickle) {
  pickle.integer(0);
}
void size(PickleBuilder& pickle) {
  pickle.integers({4});
}
void stride(PickleBuilder& pickle) {
  pickle.integers({1});
}
void flag(PickleBuilder& pickle) {
  pickle.boolean(false);
}
void hooks(PickleBuilder& pickle) {
  pickle.ordered_dict();
}
void dict(PickleBuilder& pickle) {
  pickle.empty_dict();
}
void dtype(PickleBuilder& pickle) {
  pickle.global("torch", "float32");
}
void device(PickleBuilder& pickle) {
  pickle.string("xla:0");
}
void tensor(PickleBuilder& pickle) {
  put_tensor(pickle, {.shape = {4}}, "0", 16);
}
void array(PickleBuilder& pickle) {
  put_array(pickle, {.shape = {1}, .bytes = f32({1})});
}
void quantizer(PickleBuilder& pickle) {
  put_quantizer(pickle, 0.5, 1);
}
void layout(PickleBuilder& pickle) {
  pickle.global("torch.serialization", "_get_layout").mark().string("torch.sparse_csr");
  pickle.tuple().reduce();
}
void csr(PickleBuilder& pickle) {  // one row of no values
  pickle.mark();
  put_tensor(pickle, {.dtype = DType::kInt64, .shape = {2}}, "1", 16);
  put_tensor(pickle, {.dtype = DType::kInt64, .shape = {0}}, "1", 16);
  put_tensor(pickle, {.shape = {0}}, "0", 16);
  pickle.integers({1, 4}).tuple();
}
void function(PickleBuilder& pickle) {
  pickle.global("torch._utils", "_rebuild_tensor");
}
void type(PickleBuilder& pickle) {
  pickle.global("my", "Tensor");
}
void made_of(PickleBuilder& pickle) {
  floats(pickle.mark());
  pickle.integer(0).integers({4}).integers({1}).tuple();
}

std::vector<Signature> signatures() {
  const std::vector<Put> view{floats, zero, size, stride};
  const std::vector<Put> converted{tensor, dtype, device, flag};
  const std::vector<Put> from_type{function, type, made_of, dict};
  return {
      {"torch._utils", "_rebuild_tensor", 4, view},
      {"torch._utils", "_rebuild_tensor_v2", 6, {floats, zero, size, stride, flag, hooks, dict}},
      {"torch._utils",
       "_rebuild_tensor_v3",
       7,
       {bytes, zero, size, stride, flag, hooks, dtype, dict}},
      {"torch._utils",
       "_rebuild_qtensor",
       7,
       {quantized, zero, size, stride, quantizer, flag, hooks}},
      {"torch._utils", "_rebuild_sparse_tensor", 2, {layout, csr}},
      {"torch._utils", "_rebuild_sparse_csr_tensor", 2, {layout, csr}},
      {"torch._utils", "_rebuild_parameter", 3, {tensor, flag, hooks}},
      {"torch._utils", "_rebuild_parameter_with_state", 4, {tensor, flag, hooks, dict}},
      {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", 4, converted},
      {"torch._utils", "_rebuild_device_tensor_from_numpy", 4, {array, dtype, device, flag}},
      {"torch._utils", "_rebuild_xla_tensor", 4, {array, dtype, device, flag}},
      {"torch.nn.parameter", "Parameter", 1, {tensor, flag}},
      {"torch.nn.parameter", "Buffer", 1, {tensor}},
      {"torch._tensor", "_rebuild_from_type", 4, from_type},
      {"torch._tensor", "_rebuild_from_type_v2", 4, from_type},
      {"torch.tensor", "_rebuild_from_type", 4, from_type},
      {"torch.tensor", "_rebuild_from_type_v2", 4, from_type},
  };
}

// {"w": the call with the first `count` arguments, and None for each that torch does not know}.
Result<Checkpoint> open_call(const Signature& signature, std::size_t count) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  pickle.global(signature.module, signature.function).mark();
  for (std::size_t i = 0; i < count; ++i) {
    i < signature.arguments.size() ? signature.arguments[i](pickle) : (void)pickle.none();
  }
  pickle.tuple().reduce().set_items().stop();
  return open_bytes(zip_of(pickle, {f32({1, 2, 3, 4}), std::string(16, '\0')}), {.densify = true});
}

TEST(TensorDeclaration, ARebuildCallHasAsManyArgumentsAsTorchTakes) {
  for (const Signature& signature : signatures()) {
    const std::size_t most = signature.arguments.size();
    for (std::size_t count = 0; count <= most + 2; ++count) {
      SCOPED_TRACE(fmt::format("{} of {} arguments", signature.function, count));
      const auto checkpoint = open_call(signature, count);
      if (count < signature.least) {
        EXPECT_THAT(checkpoint, FailsWith(ErrorCode::kCorrupt, "'w'"));
      } else if (count <= most) {
        EXPECT_THAT(checkpoint, IsOk());
      } else {
        EXPECT_THAT(
            checkpoint,
            FailsWith(
                ErrorCode::kUnsupported,
                fmt::format("'w': its rebuild call has {} arguments, but torch accepts at most {}",
                            count, most)));
      }
    }
  }
}

TEST(TensorDeclaration, ATensorWithArgumentsThatTorchDoesNotTakeIsListedAsRefused) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  floats(pickle.mark());
  pickle.integer(0).integers({4}).integers({1}).boolean(false).ordered_dict();
  pickle.none().none().none().tuple().reduce().string("v");
  tensor(pickle);
  pickle.set_items().stop();
  const auto listed =
      open_bytes(zip_of(pickle, {f32({1, 2, 3, 4})}), {.selection = Selection::kEverything});
  ASSERT_THAT(names(listed), ::testing::ElementsAre("v"));
  ASSERT_EQ(listed->refused_tensors().size(), 1U);
  EXPECT_EQ(listed->refused_tensors()[0].path, "w");
}

}  // namespace
}  // namespace onnx_external
