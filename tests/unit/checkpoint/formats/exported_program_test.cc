#include <fmt/format.h>
#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/open_bytes.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/value_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using Records = std::vector<std::pair<std::string, std::string>>;

std::string zip_of(const Records& records, bool deflated = false) {
  ZipBuilder zip;
  for (const auto& [name, data] : records) {
    zip.add({.name = name, .data = data, .deflated = deflated});
  }
  return zip.finish();
}

std::string saved(const std::vector<std::string>& tensors) {
  std::vector<TestTensor> all;
  for (const std::string& name : tensors) {
    all.push_back({.name = name, .shape = {2}, .bytes = f32({1, 2})});
  }
  return torch_zip(all);
}

Records flat_records() {
  return {{"serialized_exported_program.json", "{}"},
          {"serialized_state_dict.pt",
           torch_zip({{.name = "fc.weight", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})},
                      {.name = "fc.bias", .shape = {2}, .bytes = f32({5, 6})}})},
          {"serialized_constants.pt", saved({"scale"})},
          {"version", "8.2"}};
}

TEST(ExportedProgram, TheFlatArchiveOfTorch21To27IsRead) {
  const auto checkpoint = open_bytes(zip_of(flat_records()));
  ASSERT_THAT(names(checkpoint), ElementsAre("fc.weight", "fc.bias", "scale"));
  EXPECT_EQ(checkpoint->format(), "torch-export");
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({5, 6}));
  EXPECT_THAT(checkpoint->files(), SizeIs(1));
  EXPECT_TRUE(checkpoint->plain_range(0).has_value());
}

TEST(ExportedProgram, TheStateDictOfTorch21HasAnotherSuffixAndNoConstants) {
  EXPECT_THAT(names(open_bytes(zip_of({{"serialized_exported_program.json", "{}"},
                                       {"serialized_state_dict.json", saved({"w"})},
                                       {"version", "1"}}))),
              ElementsAre("w"));
}

TEST(ExportedProgram, AFlatArchiveWithoutAStateDictIsRefused) {
  EXPECT_THAT(open_bytes(zip_of({{"serialized_exported_program.json", "{}"}})),
              FailsWith(ErrorCode::kCorrupt, "no record 'serialized_state_dict.pt'"));
}

TEST(ExportedProgram, AFlatArchiveHasNoKeys) {
  EXPECT_THAT(open_bytes(zip_of(flat_records()), {.key = "model"}),
              FailsWith(ErrorCode::kNotFound, "no dict at the key 'model'"));
  EXPECT_THAT(open_bytes(zip_of(flat_records()), {.key = "."}), IsOk());
}

TEST(ExportedProgram, CompressedInnerFilesAreRefused) {
  EXPECT_THAT(open_bytes(zip_of(flat_records(), true)),
              FailsWith(ErrorCode::kUnsupported, "zip the archive again without compression"));
}

TEST(ExportedProgram, ADamagedInnerFileIsReported) {
  Records records = flat_records();
  records[1].second.resize(100);
  EXPECT_THAT(open_bytes(zip_of(records)), FailsWith(ErrorCode::kCorrupt, "slice at byte"));
}

TEST(ExportedProgram, AConstantMayNotHaveTheNameOfAWeight) {
  Records records = flat_records();
  records[2].second = saved({"fc.bias"});
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name 'fc.bias'"));
}

std::string meta(const std::string& sizes, const std::string& strides, int offset = 0,
                 const std::string& dtype = "7", const std::string& layout = "7") {
  const auto list = [](const std::string& numbers) {
    std::string out;
    for (const char number : numbers) {
      out += fmt::format("{}{{\"as_int\": {}}}", out.empty() ? "" : ", ", number);
    }
    return out;
  };
  return fmt::format(
      R"({{"dtype": {}, "sizes": [{}], "requires_grad": false, "device": {{"type": "cpu", "index": null}},)"
      R"( "strides": [{}], "storage_offset": {{"as_int": {}}}, "layout": {}}})",
      dtype, list(sizes), list(strides), offset, layout);
}

std::string payload(const std::string& record, const std::string& tensor_meta,
                    bool pickled = false) {
  return fmt::format(
      R"({{"path_name": "{}", "is_param": true, "use_pickle": {}, "tensor_meta": {}}})", record,
      pickled, tensor_meta);
}

std::string config(const std::vector<std::pair<std::string, std::string>>& payloads) {
  std::string out;
  for (const auto& [name, value] : payloads) {
    out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", name, value);
  }
  return "{\"config\": {" + out + "}}";
}

Records archive_records(const std::string& weights, const std::string& constants = config({})) {
  return {{"m/archive_format", "pt2"},
          {"m/models/model.json", "{}"},
          {"m/data/weights/weight_0", f32({1, 2, 3, 4})},
          {"m/data/weights/model_weights_config.json", weights},
          {"m/data/constants/tensor_0", f32({7, 8})},
          {"m/data/constants/model_constants_config.json", constants},
          {"m/byteorder", "little"},
          {"m/archive_version", "0"},
          {"m/.data/version", "6\n"}};
}

TEST(ExportedProgram, TensorsOfAPT2ArchiveViewItsPayloads) {
  const auto checkpoint = open_bytes(
      zip_of(archive_records(config({{"fc.weight", payload("weight_0", meta("22", "21"))},
                                     {"fc.transposed", payload("weight_0", meta("22", "12"))},
                                     {"fc.bias", payload("weight_0", meta("2", "1", 1))}}),
                             config({{"scale", payload("tensor_0", meta("2", "1"))}}))));
  ASSERT_THAT(names(checkpoint), ElementsAre("fc.weight", "fc.transposed", "fc.bias", "scale"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 3, 4}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({1, 3, 2, 4}));
  EXPECT_EQ(read_all(*checkpoint, 2), f32({2, 3}));
  EXPECT_EQ(read_all(*checkpoint, 3), f32({7, 8}));
  EXPECT_THAT(checkpoint->storages(), SizeIs(2));
}

TEST(ExportedProgram, BigEndianPayloadsAreSwapped) {
  Records records = archive_records(config({{"w", payload("weight_0", meta("1", "1"))}}));
  records[2].second = std::string("\x3f\x80\x00\x00", 4);
  records[6].second = "big";
  const auto checkpoint = open_bytes(zip_of(records));
  ASSERT_THAT(names(checkpoint), ElementsAre("w"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1}));
}

TEST(ExportedProgram, PickledPayloadsAreFilesOfOneTensor) {
  PickleBuilder pickle;
  put_tensor(pickle.proto(), {.shape = {2}}, "0", 8);
  Records records = archive_records(config({{"w", payload("weight_0", "null", true)}}));
  records[2].second =
      zip_of({{"archive/data.pkl", pickle.stop().bytes()}, {"archive/data/0", f32({3, 4})}});
  const auto checkpoint = open_bytes(zip_of(records));
  ASSERT_THAT(names(checkpoint), ElementsAre("w"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({3, 4}));
  records[2].second = saved({"a", "b"});
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "does not contain exactly one tensor"));
}

TEST(ExportedProgram, NamesThatShareAPickledPayloadAreTied) {
  PickleBuilder pickle;
  put_tensor(pickle.proto(), {.shape = {2}}, "0", 8);
  Records records = archive_records(
      config({{"v", payload("weight_0", "null", true)}, {"w", payload("weight_0", "null", true)}}));
  records[2].second =
      zip_of({{"archive/data.pkl", pickle.stop().bytes()}, {"archive/data/0", f32({3, 4})}});
  const auto checkpoint = open_bytes(zip_of(records));
  ASSERT_THAT(names(checkpoint), ElementsAre("v", "w"));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({3, 4}));
  EXPECT_EQ(checkpoint->plain_range(0), checkpoint->plain_range(1));
  EXPECT_THAT(checkpoint->storages(), SizeIs(1));
}

TEST(ExportedProgram, RawComplexHalvesAreWidenedOnRequest) {
  Records records = archive_records(config({{"w", payload("weight_0", meta("2", "1", 0, "9"))}}));
  records[2].second = std::string("\0\x3c\0\x40\0\0\0\xbc", 8);  // 1 + 2i, -1i
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "tensor 'w': it is complex32"));
  const auto checkpoint = open_bytes(zip_of(records), {.widen_complex32 = true});
  ASSERT_THAT(names(checkpoint), ElementsAre("w"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2, 0, -1}));
}

// A torch.save file whose object is an array of `bytes` zeros that the pickle holds.
std::string saved_array(std::uint64_t bytes) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().string("w").global("numpy.core.numeric", "_frombuffer").mark();
  put_bytes(pickle, std::string(static_cast<std::size_t>(bytes), '\0'));
  put_array_type(pickle, {.type = "u1", .order = "|"});
  pickle.integers({static_cast<std::int64_t>(bytes)}).string("C").tuple().reduce().op('s').stop();
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.bytes(), .deflated = true});
  return zip.finish();
}

TEST(ExportedProgram, InnerFilesShareOneLimitOfMemory) {
  const std::string half = saved_array(kAlwaysExpandedBytes / 2 + 1);
  Records records = flat_records();
  records[1].second = half;
  EXPECT_THAT(open_bytes(zip_of(records)), IsOk());
  records[2].second = half;
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "that has to be kept in memory"));
}

TEST(ExportedProgram, ExampleInputsAreRecordedInputs) {
  PickleBuilder call;  // ((tensor,), {})
  call.proto().mark().mark();
  put_tensor(call, {.shape = {2}}, "0", 8);
  call.tuple().empty_dict().tuple().stop();
  const std::string inputs =
      zip_of({{"archive/data.pkl", call.bytes()}, {"archive/data/0", f32({3, 4})}});
  const OpenOptions recorded{.selection = Selection::kRecordedInputs};
  Records flat = flat_records();
  EXPECT_THAT(open_bytes(zip_of(flat), recorded),
              FailsWith(ErrorCode::kNotFound, "contains no example inputs; record inputs with"));
  flat.emplace_back("serialized_example_inputs.pt", inputs);
  EXPECT_THAT(names(open_bytes(zip_of(flat), recorded)), ElementsAre("0.[0]"));
  Records archive = archive_records(config({}));
  archive.emplace_back("m/data/sample_inputs/model.pt", inputs);
  const auto checkpoint = open_bytes(zip_of(archive), recorded);
  ASSERT_THAT(names(checkpoint), ElementsAre("0.[0]"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({3, 4}));
  archive.emplace_back("m/models/second.json", "{}");
  EXPECT_THAT(open_bytes(zip_of(archive), recorded),
              FailsWith(ErrorCode::kAmbiguous, "'model', 'second'; record the inputs of one"));
}

TEST(ExportedProgram, WeightsOfOlderPT2ArchivesAreASavedDict) {
  EXPECT_THAT(names(open_bytes(zip_of({{"m/archive_format", "pt2"},
                                       {"m/models/model.json", "{}"},
                                       {"m/data/weights/model.pt", saved({"w"})},
                                       {"m/data/constants/model.pt", saved({"c"})}}))),
              ElementsAre("w", "c"));
}

TEST(ExportedProgram, ObjectsAmongTheConstantsAreReported) {
  const auto checkpoint = open_bytes(
      zip_of(archive_records(config({{"w", payload("weight_0", meta("2", "1"))}}),
                             config({{"tokenizer", payload("custom_obj_0", "null", true)}}))));
  ASSERT_THAT(names(checkpoint), ElementsAre("w"));
  ASSERT_THAT(checkpoint->opaque_objects(), SizeIs(1));
  EXPECT_EQ(checkpoint->opaque_objects()[0].path, "tokenizer");
}

Records two_programs() {
  Records records = archive_records(config({{"w", payload("weight_0", meta("2", "1"))}}));
  records.emplace_back("m/models/second.json", "{}");
  records.emplace_back("m/data/weights/second_weights_config.json",
                       config({{"v", payload("weight_0", meta("2", "1"))}}));
  return records;
}

TEST(ExportedProgram, SeveralProgramsAreToldApartByKeys) {
  const std::string bytes = zip_of(two_programs());
  EXPECT_THAT(open_bytes(bytes),
              FailsWith(ErrorCode::kAmbiguous, "'model', 'second'; --key model: uses this one"));
  EXPECT_THAT(names(open_bytes(bytes, {.key = "second"})), ElementsAre("v"));
  EXPECT_THAT(names(open_bytes(bytes, {.key = "."})), ElementsAre("model.w", "second.v"));
  EXPECT_THAT(names(open_bytes(bytes, {.selection = Selection::kEverything})),
              ElementsAre("model.w", "second.v"));
  EXPECT_THAT(open_bytes(bytes, {.key = "third"}),
              FailsWith(ErrorCode::kNotFound, "no exported program 'third'; available: 'model'"));
}

struct PayloadFault {
  const char* name;
  std::string config;
  ErrorCode code;
  const char* message;
};
void PrintTo(const PayloadFault& lie, std::ostream* out) {
  *out << lie.name;
}

class PayloadLie : public ::testing::TestWithParam<PayloadFault> {};

TEST_P(PayloadLie, IsRefused) {
  EXPECT_THAT(open_bytes(zip_of(archive_records(GetParam().config))),
              FailsWith(GetParam().code, GetParam().message));
}

std::string one(const std::string& value) {
  return config({{"w", value}});
}

// Of an expanded [size, size, 2].
std::string meta_of_size(const std::string& size) {
  return fmt::format(R"({{"dtype": 7, "layout": 7, "storage_offset": {{"as_int": 0}},)"
                     R"( "sizes": [{{"as_int": {0}}}, {{"as_int": {0}}}, {{"as_int": 2}}],)"
                     R"( "strides": [{{"as_int": 0}}, {{"as_int": 0}}, {{"as_int": 1}}]}})",
                     size);
}

INSTANTIATE_TEST_SUITE_P(
    ExportedProgram, PayloadLie,
    ::testing::Values(
        PayloadFault{"NotJson", "nonsense", ErrorCode::kCorrupt,
                     "model_weights_config.json': byte"},
        PayloadFault{"ByteOrderMark", "\xEF\xBB\xBF" + config({}), ErrorCode::kCorrupt,
                     "model_weights_config.json': byte 1: a byte order mark"},
        PayloadFault{"NulAtTheEnd", config({}) + '\0', ErrorCode::kCorrupt, "byte 15: a NUL byte"},
        PayloadFault{"NoConfig", "{}", ErrorCode::kCorrupt, "no object 'config'"},
        PayloadFault{"TwinNames", config({{"w", "{}"}, {"w", "{}"}}), ErrorCode::kCorrupt, "twice"},
        PayloadFault{"NoPath", one("{\"use_pickle\": false}"), ErrorCode::kCorrupt, "no path_name"},
        PayloadFault{"PickleIsText", one(R"({"path_name": "weight_0", "use_pickle": "no"})"),
                     ErrorCode::kCorrupt, "no use_pickle"},
        PayloadFault{"NoMeta", one(payload("weight_0", "null")), ErrorCode::kCorrupt,
                     "no tensor_meta"},
        PayloadFault{"MissingRecord", one(payload("weight_9", meta("2", "1"))), ErrorCode::kCorrupt,
                     "'data/weights/weight_9' is missing"},
        PayloadFault{"RecordElsewhere", one(payload("../constants/tensor_0", meta("2", "1"))),
                     ErrorCode::kCorrupt, "is missing"},
        PayloadFault{"TooLong", one(payload("weight_0", meta("5", "1"))), ErrorCode::kCorrupt,
                     "reach outside its record of 16 bytes"},
        PayloadFault{"TooLarge", one(payload("weight_0", meta_of_size("1099511627776"))),
                     ErrorCode::kCorrupt, "'w'"},
        PayloadFault{"OffsetTooFar", one(payload("weight_0", meta("2", "1", 3))),
                     ErrorCode::kCorrupt, "reach outside"},
        PayloadFault{"NegativeOffset", one(payload("weight_0", meta("2", "1", -1))),
                     ErrorCode::kCorrupt, "as_int"},
        PayloadFault{"RanksDiffer", one(payload("weight_0", meta("22", "1"))), ErrorCode::kCorrupt,
                     "'w'"},
        PayloadFault{"SizesNoList",
                     one(payload("weight_0", R"({"dtype": 7, "layout": 7, "sizes": 3})")),
                     ErrorCode::kCorrupt, "not a list"},
        PayloadFault{"UnknownType", one(payload("weight_0", meta("2", "1", 0, "99"))),
                     ErrorCode::kUnsupported, "element type number 99"},
        PayloadFault{"TypeIsText", one(payload("weight_0", meta("2", "1", 0, "\"f\""))),
                     ErrorCode::kCorrupt, "dtype is not a number"},
        PayloadFault{"Sparse", one(payload("weight_0", meta("2", "1", 0, "7", "1"))),
                     ErrorCode::kUnsupported, "not strided"},
        PayloadFault{
            "Symbolic",
            one(payload(
                "weight_0",
                R"({"dtype": 7, "layout": 7, "sizes": [{"as_expr": {"expr_str": "s0"}}]})")),
            ErrorCode::kUnsupported, "symbolic"}),
    [](const auto& lie) { return std::string(lie.param.name); });

TEST(ExportedProgram, EveryNumberOfAnElementTypeIsItsType) {
  const std::vector<std::pair<int, DType>> types = {
      {1, DType::kUInt8},           {2, DType::kInt8},           {3, DType::kInt16},
      {4, DType::kInt32},           {5, DType::kInt64},          {6, DType::kFloat16},
      {7, DType::kFloat32},         {8, DType::kFloat64},        {10, DType::kComplex64},
      {11, DType::kComplex128},     {12, DType::kBool},          {13, DType::kBFloat16},
      {28, DType::kUInt16},         {29, DType::kFloat8E4M3Fn},  {30, DType::kFloat8E5M2},
      {31, DType::kFloat8E4M3FnUz}, {32, DType::kFloat8E5M2FnUz}};
  for (const auto& [number, dtype] : types) {
    const auto checkpoint = open_bytes(zip_of(
        archive_records(one(payload("weight_0", meta("1", "1", 0, std::to_string(number)))))));
    ASSERT_THAT(checkpoint, IsOk()) << number;
    EXPECT_EQ(checkpoint->tensors()[0].dtype, dtype) << number;
  }
}

TEST(ExportedProgram, InspectionListsWhatIsRefusedAndGoesOn) {
  const auto checkpoint = open_bytes(
      zip_of(archive_records(config({{"odd", payload("weight_0", meta("2", "1", 0, "99"))},
                                     {"w", payload("weight_0", meta("2", "1"))}}))),
      {.selection = Selection::kEverything});
  ASSERT_THAT(names(checkpoint), ElementsAre("w"));
  ASSERT_THAT(checkpoint->refused_tensors(), SizeIs(1));
  EXPECT_EQ(checkpoint->refused_tensors()[0].path, "odd");
}

TEST(ExportedProgram, EmptyPayloadsAreOfAProgramWithoutItsWeights) {
  Records records = archive_records(config({{"w", payload("weight_0", meta("2", "1"))}}));
  records[2].second.clear();
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "saved without its weights"));
}

TEST(ExportedProgram, CompiledCodeAloneIsRefused) {
  EXPECT_THAT(open_bytes(zip_of(
                  {{"m/archive_format", "pt2"}, {"m/data/aotinductor/model/model.so", "elf"}})),
              FailsWith(ErrorCode::kUnsupported, "without an exported program"));
}

TEST(ExportedProgram, OtherArchiveFormatsAndVersionsAreRefused) {
  Records records = archive_records(one(payload("weight_0", meta("2", "1"))));
  records[0].second = "pt3";
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "'m/archive_format': 'pt3' is not supported"));
  records[0].second = "pt2";
  records[7].second = "1";
  EXPECT_THAT(open_bytes(zip_of(records)),
              FailsWith(ErrorCode::kUnsupported, "'m/archive_version': '1' is not supported"));
}

TEST(ExportedProgram, AProgramWithoutAnyWeightsRecordIsRefused) {
  EXPECT_THAT(open_bytes(zip_of({{"m/archive_format", "pt2"}, {"m/models/model.json", "{}"}})),
              FailsWith(ErrorCode::kUnsupported, "program 'model' has neither a record"));
}

}  // namespace
}  // namespace onnx_external
