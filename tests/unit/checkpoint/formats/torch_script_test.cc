#include <gmock/gmock.h>

#include "checkpoint/naming/script_classes.h"
#include "onnx_external/checkpoint.h"
#include "support/open_bytes.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr const char* kCode =
    "class Net(Module):\n"
    "  __parameters__ = [\"scale\", ]\n"
    "  __buffers__ = [\"table\", ]\n"
    "  table : Tensor\n"
    "  def forward(self: __torch__.Net,\n"
    "    x: Tensor) -> Tensor:\n"
    "    return x\n"
    "class Pair:\n"
    "  left : Tensor\n";
constexpr const char* kLinearCode =
    "class Linear(Module):\n"
    "  __parameters__ = [\"weight\", \"bias\", ]\n"
    "  __buffers__ = []\n";

// An archive as torch.jit.save writes it, with storages data/0 and constants/0 of four floats.
struct Archive {
  std::string data = {};
  std::string constants = ")\x2e";
  std::string code = kCode;
  std::string version = "3\n";
  bool mobile = false;
  bool damaged_code = false;
};

std::string zip_of(const Archive& archive) {
  ZipBuilder zip;
  zip.add({.name = "m/data/0", .data = f32({1, 2, 3, 4})});
  zip.add({.name = "m/data.pkl", .data = archive.data});
  ZipRecord code{.name = "m/code/__torch__.py", .data = archive.code, .deflated = true};
  if (archive.damaged_code) {
    code.central_lie = [](ZipFields& fields) { fields.crc ^= 1; };
  }
  if (!archive.code.empty()) {
    zip.add(code);
    zip.add({.name = "m/code/__torch__/nn.py", .data = kLinearCode, .deflated = true});
  }
  zip.add({.name = "m/constants/0", .data = f32({5, 6, 7, 8})});
  zip.add({.name = "m/constants.pkl", .data = archive.constants});
  if (archive.mobile) {
    zip.add({.name = "m/bytecode.pkl", .data = "N."});
  }
  zip.add({.name = "m/.data/version", .data = archive.version});
  return zip.finish();
}

PickleBuilder& put_parameter(PickleBuilder& pickle, const std::string& name) {
  pickle.string(name);
  put_tensor(pickle, {.name = name, .shape = {4}}, "0", 16);
  return pickle;
}

PickleBuilder& open_object(PickleBuilder& pickle, std::string_view module, std::string_view name) {
  return pickle.global(module, name).empty_tuple().new_object().empty_dict().mark();
}

// Net(table, scale, cache, list, fc = Linear(bias, weight)) with the attributes in that order.
std::string net_pickle() {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__", "Net");
  put_parameter(pickle, "table");
  put_parameter(pickle, "scale");
  put_parameter(pickle, "cache").string("list");
  pickle.global("torch.jit._pickle", "restore_type_tag").mark();
  pickle.global("torch.jit._pickle", "build_tensorlist").mark().empty_list().mark();
  put_tensor(pickle, {.shape = {2}}, "0", 16);
  pickle.append_items().tuple().reduce().string("List[Tensor]").tuple().reduce();
  open_object(pickle.string("fc"), "__torch__.nn", "Linear");
  put_parameter(pickle, "bias");
  put_parameter(pickle, "weight").set_items().build();
  return pickle.set_items().build().stop().bytes();
}

std::string constants_pickle() {
  PickleBuilder pickle;
  pickle.proto().mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  put_tensor(pickle, {.shape = {2}, .offset = 2}, "0", 16);
  return pickle.tuple().stop().bytes();
}

TEST(TorchScript, NamesAreThoseOfTheModulesStateDict) {
  const auto checkpoint = open_bytes(zip_of({.data = net_pickle()}));
  EXPECT_THAT(names(checkpoint), ElementsAre("scale", "table", "fc.bias", "fc.weight"));
  EXPECT_EQ(checkpoint->format(), "torchscript");
}

TEST(TorchScript, InspectionListsAllAttributesAndTheConstants) {
  const auto checkpoint =
      open_bytes(zip_of({.data = net_pickle(), .constants = constants_pickle()}),
                 {.selection = Selection::kEverything});
  EXPECT_THAT(names(checkpoint), ElementsAre("table", "scale", "cache", "list.0", "fc.bias",
                                             "fc.weight", "CONSTANTS.c0", "CONSTANTS.c1"));
  EXPECT_THAT(checkpoint->opaque_objects(), SizeIs(0));
}

TEST(TorchScript, WithoutCodeEveryTensorAttributeIsListed) {
  EXPECT_THAT(names(open_bytes(zip_of({.data = net_pickle(), .code = ""}))),
              ElementsAre("table", "scale", "cache", "fc.bias", "fc.weight"));
}

TEST(TorchScript, WithoutAListOfBuffersTensorAttributesAreBuffers) {
  const std::string code = "class Net(Module):\n  __parameters__ = [\"scale\", ]\n";
  EXPECT_THAT(names(open_bytes(zip_of({.data = net_pickle(), .code = code}))),
              ElementsAre("scale", "table", "cache", "fc.bias", "fc.weight"));
}

TEST(TorchScript, ConstantsOfAFrozenModuleAreItsTensors) {
  PickleBuilder module;
  open_object(module.proto(), "__torch__", "Net").set_items().build().stop();
  const auto checkpoint =
      open_bytes(zip_of({.data = module.bytes(), .constants = constants_pickle()}));
  ASSERT_THAT(names(checkpoint), ElementsAre("CONSTANTS.c0", "CONSTANTS.c1"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({5, 6, 7, 8}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({7, 8}));
}

TEST(TorchScript, ConstantsAreChosenByTheirKey) {
  EXPECT_THAT(names(open_bytes(zip_of({.data = net_pickle(), .constants = constants_pickle()}),
                               {.key = "CONSTANTS"})),
              ElementsAre("CONSTANTS.c0", "CONSTANTS.c1"));
}

TEST(TorchScript, AModuleWithoutAnyTensorsIsRefused) {
  PickleBuilder module;
  open_object(module.proto(), "__torch__", "Net").set_items().build().stop();
  EXPECT_THAT(open_bytes(zip_of({.data = module.bytes()})),
              FailsWith(ErrorCode::kNotFound, "contains no dict that maps names to tensors"));
}

TEST(TorchScript, AnObjectThatIsNotAModuleIsNotInTheStateDict) {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__", "Net");
  put_parameter(pickle, "scale").string("pair");
  open_object(pickle, "__torch__", "Pair");
  put_parameter(pickle, "left").set_items().build().set_items().build().stop();
  EXPECT_THAT(names(open_bytes(zip_of({.data = pickle.bytes()}))), ElementsAre("scale"));
}

TEST(TorchScript, PackedParametersAreReportedByName) {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__", "Net");
  put_parameter(pickle, "scale").string("packed");
  pickle.global("__torch__.torch.classes.quantized", "LinearPackedParamsBase");
  pickle.empty_tuple().new_object().mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.none().tuple().build().set_items().build().stop();
  const auto checkpoint = open_bytes(zip_of({.data = pickle.bytes()}));
  EXPECT_THAT(names(checkpoint), ElementsAre("scale"));
  ASSERT_THAT(checkpoint->opaque_objects(), SizeIs(1));
  EXPECT_EQ(checkpoint->opaque_objects()[0].path, "packed");
  EXPECT_EQ(checkpoint->opaque_objects()[0].type,
            "__torch__.torch.classes.quantized.LinearPackedParamsBase");
}

TEST(TorchScript, StoragesMayComeFromTheMemo) {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__", "Net").string("scale");
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark().mark().string("storage");
  pickle.global("torch", "FloatStorage").string("0").string("cpu").integer(4).tuple();
  pickle.persistent_id().put(9).integer(0).integers({2}).integers({1}).boolean(true);
  pickle.ordered_dict().tuple().reduce().string("table");
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark().get(9).integer(2).integers({2});
  pickle.integers({1}).boolean(false).ordered_dict().tuple().reduce();
  pickle.set_items().build().stop();
  const auto checkpoint = open_bytes(zip_of({.data = pickle.bytes()}));
  ASSERT_THAT(names(checkpoint), ElementsAre("scale", "table"));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({3, 4}));
}

TEST(TorchScript, TypesHaveTheNamesOfTheCppPickler) {
  const std::vector<std::pair<std::string, DType>> types = {
      {"ComplexHalfStorage", DType::kComplex32},
      {"UInt16Storage", DType::kUInt16},
      {"UInt32Storage", DType::kUInt32},
      {"UInt64Storage", DType::kUInt64},
      {"Float8_e4m3fnStorage", DType::kFloat8E4M3Fn},
      {"Float8_e4m3fnuzStorage", DType::kFloat8E4M3FnUz},
      {"Float8_e5m2Storage", DType::kFloat8E5M2},
      {"Float8_e5m2fnuzStorage", DType::kFloat8E5M2FnUz},
      {"Float8_e8m0fnuStorage", DType::kFloat8E8M0FnU},
      {"Float4_e2m1fn_x2Storage", DType::kFloat4E2M1FnX2}};
  for (const auto& [name, dtype] : types) {
    PickleBuilder pickle;
    open_object(pickle.proto(), "__torch__", "Net").string("scale");
    pickle.global("torch._utils", "_rebuild_tensor_v2").mark().mark().string("storage");
    pickle.global("torch", name).string("0").string("cpu").integer(16 / byte_size(dtype)).tuple();
    pickle.persistent_id().integer(0).integers({2}).integers({1}).boolean(false).ordered_dict();
    pickle.tuple().reduce().set_items().build().stop();
    const auto checkpoint =
        open_bytes(zip_of({.data = pickle.bytes()}), {.selection = Selection::kEverything});
    ASSERT_THAT(checkpoint, IsOk()) << name;
    if (dtype == DType::kComplex32 && checkpoint->tensors().empty()) {
      continue;  // listed as refused: ONNX has no such type
    }
    ASSERT_THAT(checkpoint->tensors(), SizeIs(1)) << name;
    EXPECT_EQ(checkpoint->tensors()[0].dtype, dtype) << name;
  }
}

TEST(TorchScript, ByteCodeMakesItAMobileArchive) {
  const auto checkpoint = open_bytes(zip_of({.data = net_pickle(), .mobile = true}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "torchscript-mobile");
}

TEST(TorchScript, AMobileModuleAsAFlatbufferIsRefusedByName) {
  EXPECT_THAT(open_bytes(std::string("\x28\0\0\0PTMF", 8) + std::string(64, '\0')),
              FailsWith(ErrorCode::kUnsupported, "PyTorch mobile module as a flatbuffer"));
}

TEST(TorchScript, AConstantMayNotHaveTheNameOfAnAttribute) {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__", "Net");
  put_parameter(pickle, "CONSTANTS.c0").set_items().build().stop();
  EXPECT_THAT(open_bytes(zip_of({.data = pickle.bytes(), .constants = constants_pickle()}),
                         {.selection = Selection::kEverything}),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name 'CONSTANTS.c0'"));
}

TEST(TorchScript, DamagedCodeIsReported) {
  EXPECT_THAT(open_bytes(zip_of({.data = net_pickle(), .damaged_code = true})),
              FailsWith(ErrorCode::kCorrupt, "m/code/__torch__.py"));
}

TEST(TorchScript, CodeThatInflatesTooFarIsRefused) {
  const std::string code = kCode + std::string(kMaxInflatedScriptCodeBytes, '\n');
  EXPECT_THAT(open_bytes(zip_of({.data = net_pickle(), .code = code})),
              FailsWith(ErrorCode::kUnsupported, "m/code/__torch__.py"));
}

TEST(TorchScript, VersionsThatAreNotKnownAreRefused) {
  EXPECT_THAT(open_bytes(zip_of({.data = net_pickle(), .version = "11\n"})),
              FailsWith(ErrorCode::kUnsupported, "torch format version"));
}

TEST(TorchScript, AMissingRecordOfAConstantIsNamed) {
  PickleBuilder module;
  open_object(module.proto(), "__torch__", "Net").set_items().build().stop();
  PickleBuilder constants;
  constants.proto().mark();
  put_tensor(constants, {.shape = {4}}, "7", 16);
  constants.tuple().stop();
  EXPECT_THAT(open_bytes(zip_of({.data = module.bytes(), .constants = constants.bytes()})),
              FailsWith(ErrorCode::kCorrupt, "'constants/7' is missing"));
}

// 40 modules, each holding the next one twice: 2^40 names.
TEST(TorchScript, ModulesThatRepeatTheirPartsAreRefused) {
  PickleBuilder pickle;
  open_object(pickle.proto(), "__torch__.nn", "Linear");
  put_parameter(pickle, "weight").set_items().build();
  for (std::uint32_t i = 0; i < 40; ++i) {
    open_object(pickle.put(i).op('0'), "__torch__", "Net").string("a").get(i).string("b").get(i);
    pickle.set_items().build();
  }
  EXPECT_THAT(open_bytes(zip_of({.data = pickle.stop().bytes()})),
              FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
}

}  // namespace
}  // namespace onnx_external
