// torchao's quantized weights, which are pickled as objects that wrap the tensors that store them.
#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "support/torch_file.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

using Put = std::function<void(PickleBuilder&)>;
using State = std::map<std::string, Put>;

// A storage for all tensors below: the int8 codes 1, -2, 3, -4, four floats, and two int64.
const std::string kCodes = {1, -2, 3, -4};
const std::string kFloats = f32({0.5F, 2.0F, 3.0F, 10.0F});
const std::string kIntegers = bytes_of(std::vector<std::int64_t>{1, 0});

Put tensor(DType dtype, Shape shape, const std::string& storage, const std::string& bytes,
           std::int64_t offset = 0) {
  return [=](PickleBuilder& pickle) {
    put_tensor(pickle, {.dtype = dtype, .shape = shape, .offset = offset}, storage, bytes.size());
  };
}

const Put kQdata = tensor(DType::kInt8, {2, 2}, "0", kCodes);
const Put kScale = tensor(DType::kFloat32, {2, 1}, "1", kFloats);
const Put kZeros = tensor(DType::kInt64, {2, 1}, "2", kIntegers);
const Put kFactors = tensor(DType::kFloat32, {2}, "1", kFloats, 2);
const State kInt8 = {{"qdata", kQdata}, {"scale", kScale}};

Put wrapper(const std::string& module, const std::string& name, const State& state,
            const std::vector<std::int64_t>& shape = {2, 2}) {
  return [=](PickleBuilder& pickle) {
    pickle.global("torch._tensor", "_rebuild_from_type_v2").mark();
    pickle.global("torch._utils", "_rebuild_wrapper_subclass").global(module, name).mark();
    pickle.global(module, name).global("torch", "bfloat16").integers(shape).integers({2, 1});
    pickle.integer(0).none().string("cpu").boolean(false).tuple().empty_dict().mark();
    for (const auto& [attribute, put] : state) {
      put(pickle.string(attribute));
    }
    pickle.set_items().tuple().reduce();
  };
}

Put weight(const State& state, const std::vector<std::int64_t>& shape = {2, 2}) {
  return wrapper("torchao.quantization", "Int8Tensor", state, shape);
}

State with(State state, const std::string& attribute, const Put& put) {
  state[attribute] = put;
  return state;
}

Result<Checkpoint> open_weight(const Put& put, const std::string& key = "a.weight",
                               const OpenOptions& options = {}) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string(key);
  put(pickle);
  pickle.set_items().stop();
  return open_bytes(zip_of(pickle, {kCodes, kFloats, kIntegers}), options);
}

void expect_floats(const Result<Checkpoint>& checkpoint, const std::vector<float>& values,
                   const std::string& name = "a.weight") {
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_THAT(names(*checkpoint), ElementsAre(name));
  EXPECT_EQ(checkpoint->tensors()[0].shape, (Shape{2, 2}));
  EXPECT_EQ(read_all(*checkpoint, 0), f32(values));
}

// An AffineQuantizedTensor of older versions, with the domain of its zero points.
Put affine(const State& state, const Put& domain, const std::string& impl = "PlainAQTTensorImpl") {
  return wrapper("torchao.dtypes.affine_quantized_tensor", "AffineQuantizedTensor",
                 {{"tensor_impl", wrapper("torchao.dtypes.uintx.plain_layout", impl, state)},
                  {"zero_point_domain", domain}});
}

Put domain_of(std::int64_t value) {
  return [=](PickleBuilder& pickle) {
    pickle.global("torchao.quantization.quant_primitives", "ZeroPointDomain").mark();
    pickle.integer(value).tuple().reduce();
  };
}

Put domain_named(const std::string& name) {
  return [=](PickleBuilder& pickle) {
    pickle.global("builtins", "getattr").mark();
    pickle.global("torchao.quantization.quant_primitives", "ZeroPointDomain").string(name);
    pickle.tuple().reduce();
  };
}

const State kAffine = {{"int_data", kQdata}, {"scale", kScale}, {"zero_point", kZeros}};

TEST(WrappedWeight, AWeightOfTorchaoIsReadAsTheFloatsOfItsTensors) {
  expect_floats(open_weight(weight(kInt8)), {0.5F, -1, 6, -8});
  expect_floats(open_weight(weight(kInt8), "weight"), {0.5F, -1, 6, -8}, "weight");
  expect_floats(open_weight(weight(with(kInt8, "zero_point", kZeros))), {0, -1.5F, 6, -8});
}

TEST(WrappedWeight, FactorsOfTheInputsMultiplyTheColumns) {
  expect_floats(open_weight(weight(with(kInt8, "act_pre_scale", kFactors))), {1.5F, -10, 18, -80});
}

TEST(WrappedWeight, AnAffineQuantizedTensorIsReadThroughItsImplementation) {
  for (const Put& domain : {domain_of(1), domain_named("INT")}) {
    expect_floats(open_weight(affine(kAffine, domain)), {0, -1.5F, 6, -8});
  }
  const Put linear = wrapper(
      "torchao.quantization.linear_activation_quantized_tensor", "LinearActivationQuantizedTensor",
      {{"original_weight_tensor", affine(kAffine, domain_of(1), "QDQTensorImpl")}});
  expect_floats(open_weight(linear), {0, -1.5F, 6, -8});
}

TEST(WrappedWeight, AVariantWithAnotherFormulaIsRefused) {
  const Put text = [](PickleBuilder& pickle) { pickle.string("INT"); };
  const Put symbol = [](PickleBuilder& pickle) {
    pickle.global("torchao.quantization.quant_primitives", "ZeroPointDomain.FLOAT");
  };
  for (const Put& domain : {domain_of(2), domain_named("FLOAT"), text, symbol}) {
    EXPECT_THAT(open_weight(affine(kAffine, domain)),
                FailsWith(ErrorCode::kUnsupported, "whose zero points are not integers; save"));
  }
  const Put yes = [](PickleBuilder& pickle) { pickle.boolean(true); };
  EXPECT_THAT(open_weight(affine(with(kAffine, "transposed", yes), domain_of(1))),
              FailsWith(ErrorCode::kUnsupported, "that is transposed; save tensor.dequantize()"));
  EXPECT_THAT(open_weight(affine(kAffine, domain_of(2), "TensorCoreTiledAQTTensorImpl")),
              FailsWith(ErrorCode::kUnsupported,
                        "'a.weight': it is a 'torchao.dtypes.affine_quantized_tensor."
                        "AffineQuantizedTensor' that holds a 'torchao.dtypes.uintx.plain_layout."
                        "TensorCoreTiledAQTTensorImpl', which is not supported; save"));
}

TEST(WrappedWeight, AWeightWithoutOneOfItsTensorsIsDamage) {
  EXPECT_THAT(open_weight(weight({{"qdata", kQdata}})),
              FailsWith(ErrorCode::kCorrupt,
                        "tensor 'a.weight': it is a 'torchao.quantization.Int8Tensor' without the "
                        "tensor 'scale'; save the model again with torchao"));
  const Put number = [](PickleBuilder& pickle) { pickle.integer(3); };
  EXPECT_THAT(open_weight(weight(with(kInt8, "qdata", number))),
              FailsWith(ErrorCode::kCorrupt, "without the tensor 'qdata'"));
  EXPECT_THAT(open_weight(affine({{"scale", kScale}}, domain_of(1))),
              FailsWith(ErrorCode::kCorrupt, "without the tensor 'int_data'"));
  EXPECT_THAT(open_weight(wrapper("torchao.dtypes", "AffineQuantizedTensor", {})),
              FailsWith(ErrorCode::kCorrupt, "without the tensor 'tensor_impl'"));
}

TEST(WrappedWeight, ATensorWithoutAKnownMeaningIsRefused) {
  EXPECT_THAT(open_weight(weight(with(kInt8, "correction", kFactors))),
              FailsWith(ErrorCode::kUnsupported, "with a tensor 'correction', which is not known"));
  EXPECT_THAT(open_weight(weight(with(kInt8, "per_tensor_scale", kFactors))),
              FailsWith(ErrorCode::kUnsupported,
                        "in a layout that is not supported: 'a._weight_per_tensor_scale' (float32 "
                        "[2]); save tensor.dequantize() instead"));
}

TEST(WrappedWeight, AListOfScalesOfColumnsIsNotTakenForScalesOfRows) {
  const auto with_block = [](std::int64_t rows, std::int64_t columns) {
    const State impl = with(kAffine, "scale", tensor(DType::kFloat32, {2}, "1", kFloats));
    const Put block = [=](PickleBuilder& pickle) { pickle.integers({rows, columns}); };
    return open_weight(
        wrapper("torchao.dtypes", "AffineQuantizedTensor",
                {{"tensor_impl", wrapper("torchao.dtypes", "PlainAQTTensorImpl", impl)},
                 {"block_size", block}}));
  };
  expect_floats(with_block(1, 2), {0, -1.5F, 6, -8});
  EXPECT_THAT(with_block(2, 1), FailsWith(ErrorCode::kUnsupported, "with scales of columns; save"));
}

TEST(WrappedWeight, AWeightThatIsChangedAfterItWasMadeIsRefused) {
  const Put changed = [](PickleBuilder& pickle) {
    weight(kInt8)(pickle);
    pickle.empty_dict().mark().string("scale");
    kFactors(pickle);
    pickle.set_items().build();
  };
  EXPECT_THAT(open_weight(changed), FailsWith(ErrorCode::kUnsupported, "that is changed after"));
}

TEST(WrappedWeight, OneWeightUnderVeryManyNamesIsRefused) {
  constexpr int kMany = 100'000;
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("0");
  weight(kInt8)(pickle);
  pickle.put(0);
  for (int i = 1; i < kMany; ++i) {
    pickle.string(std::to_string(i)).get(0);
  }
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle, {kCodes, kFloats, kIntegers})),
              FailsWith(ErrorCode::kUnsupported, "larger than its file allows"));
}

TEST(WrappedWeight, ATensorOutsideItsStorageIsNamed) {
  const Put outside = tensor(DType::kFloat32, {2, 1}, "1", kFloats, 3);
  EXPECT_THAT(open_weight(weight(with(kInt8, "scale", outside))),
              FailsWith(ErrorCode::kCorrupt, "tensor 'a.weight': its 'scale': shape [2, 1]"));
}

TEST(WrappedWeight, TensorsThatDoNotFitTheWeightAreAnErrorWithoutSettingsAsWell) {
  const Put three = tensor(DType::kFloat32, {3}, "1", kFloats);
  EXPECT_THAT(open_weight(weight(with(kInt8, "scale", three))),
              FailsWith(ErrorCode::kCorrupt, "'a._weight_scale'"));
  const Put words = tensor(DType::kInt32, {1, 1}, "0", kCodes);
  EXPECT_THAT(open_weight(weight(with(kInt8, "qdata", words))),
              FailsWith(ErrorCode::kUnsupported,
                        "'a.weight': it is a 'torchao.quantization.Int8Tensor' in a layout that is "
                        "not supported: 'a._weight_qdata' (int32 [1, 1]), 'a._weight_scale' "
                        "(float32 [2, 1]); save tensor.dequantize() instead"));
  EXPECT_THAT(open_weight(weight(kInt8, {2, 4})),
              FailsWith(ErrorCode::kCorrupt,
                        "'a.weight': it is a 'torchao.quantization.Int8Tensor' of shape [2, 4], "
                        "but the tensors that store it are those of [2, 2]"));
}

TEST(WrappedWeight, WrappersThatNestTooDeepAreRefused) {
  Put nested = weight(kInt8);
  for (int i = 0; i < 6; ++i) {
    nested = wrapper("torchao.dtypes", "AffineQuantizedTensor", {{"tensor_impl", nested}});
  }
  EXPECT_THAT(open_weight(nested), FailsWith(ErrorCode::kUnsupported, "which is not supported"));
}

TEST(WrappedWeight, TheStoredTensorsAreListedUnderTheNamesOfTorchaosSafetensorsFiles) {
  const auto stored = open_weight(weight(kInt8), "a.weight", {.stored_parts = true});
  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(names(*stored), ElementsAre("a._weight_qdata", "a._weight_scale"));
}

TEST(WrappedWeight, ARecordedInputIsNotTakenApart) {
  EXPECT_THAT(open_weight(weight(kInt8), "x", {.selection = Selection::kRecordedInputs}),
              FailsWith(ErrorCode::kUnsupported, "Int8Tensor', a class that wraps other tensors"));
}

TEST(WrappedWeight, AnIndexMayNameTheWeightInsteadOfItsTensors) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("a.weight");
  weight(kInt8)(pickle);
  pickle.set_items().stop();
  const TempDir dir;
  dir.write("m.bin", zip_of(pickle, {kCodes, kFloats, kIntegers}));
  const auto open_index = [&](const std::string& map) {
    const std::vector<std::filesystem::path> paths{
        dir.write("m.bin.index.json", R"({"weight_map":{)" + map + "}}")};
    return open_checkpoint(paths);
  };
  expect_floats(open_index(R"("a.weight":"m.bin")"), {0.5F, -1, 6, -8});
  EXPECT_THAT(open_index(R"("a.weight":"m.bin","b.weight":"m.bin")"),
              FailsWith(ErrorCode::kCorrupt, "tensor 'b.weight' is not in its shard"));
}

}  // namespace
}  // namespace onnx_external
