#include <gmock/gmock.h>

#include <functional>

#include "support/torch_file.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

// A zip around a pickle, with one record data/0.
std::string zip_of(const PickleBuilder& pickle) {
  return zip_of(pickle, {f32({1, 2, 3, 4})});
}

void put_w(PickleBuilder& pickle, const std::string& name = "w") {
  pickle.string(name);
  put_tensor(pickle, {.name = name, .shape = {4}}, "0", 16);
}

TEST(TorchZip, ListsTensorsWithTypeShapeAndPlace) {
  const auto checkpoint = open_bytes(torch_zip({
      {.name = "a", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})},
      {.name = "b", .dtype = DType::kFloat8E4M3Fn, .shape = {3}, .bytes = "abc"},
      {.name = "tied", .shape = {2, 2}, .shares = "a"},
      {.name = "part", .shape = {2}, .offset = 1, .shares = "a"},
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "torch-zip");
  EXPECT_THAT(names(*checkpoint), ElementsAre("a", "b", "tied", "part"));
  EXPECT_EQ(checkpoint->tensors()[1].dtype, DType::kFloat8E4M3Fn);
  EXPECT_EQ(checkpoint->plain_range(0), checkpoint->plain_range(2));
  EXPECT_EQ(checkpoint->plain_range(3)->offset, checkpoint->plain_range(0)->offset + 4);
  EXPECT_EQ(read_all(*checkpoint, 3), f32({2, 3}));
  EXPECT_EQ(read_all(*checkpoint, 1), "abc");
}

TEST(TorchZip, ReadsEveryStoredTypeByItsOwnName) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (bit_size(dtype) < 8) {
      continue;
    }
    const std::string bytes(std::size_t{2} * byte_size(dtype), '\x01');
    const auto checkpoint =
        open_bytes(torch_zip({{.name = "w", .dtype = dtype, .shape = {2}, .bytes = bytes}}));
    if (dtype == DType::kComplex32) {
      EXPECT_THAT(checkpoint, FailsWith(ErrorCode::kUnsupported, "--convert complex32"));
      continue;
    }
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_EQ(checkpoint->tensors()[0].dtype, dtype) << torch_name(dtype);
    EXPECT_EQ(read_all(*checkpoint, 0), bytes);
  }
}

TEST(TorchZip, FindsTheOnlyNestedMappingAndSkipsOtherValues) {
  const auto bytes =
      torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}}, {.nested_in = "state_dict"});
  const auto checkpoint = open_bytes(bytes);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w"));
  const auto everything = open_bytes(bytes, {.selection = Selection::kEverything});
  ASSERT_THAT(everything, IsOk());
  EXPECT_THAT(names(*everything), ElementsAre("state_dict.w"));
}

std::string two_models() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("model").empty_dict().mark();
  put_w(pickle);
  pickle.set_items().string("ema").empty_dict().mark();
  put_w(pickle);
  put_w(pickle, "v");
  pickle.set_items().set_items().stop();
  return zip_of(pickle);
}

TEST(TorchZip, ListsTheCandidatesWhenSeveralMappingsFit) {
  EXPECT_THAT(open_bytes(two_models()),
              FailsWith(ErrorCode::kAmbiguous,
                        "'model' (1 tensor), 'ema' (2 tensors); --key ema: uses this one; "
                        "--key model: uses this one; --key .: uses all"));
}

TEST(TorchZip, TakesTheMappingThatTheKeyNames) {
  const auto one = open_bytes(two_models(), {.key = "ema"});
  ASSERT_THAT(one, IsOk());
  EXPECT_THAT(names(*one), ElementsAre("w", "v"));
  const auto all = open_bytes(two_models(), {.key = "."});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(names(*all), ElementsAre("model.w", "ema.w", "ema.v"));
  EXPECT_THAT(open_bytes(two_models(), {.key = "emma"}),
              FailsWith(ErrorCode::kNotFound, "no dict at the key 'emma'; available: 'model'"));
}

TEST(TorchZip, DoesNotTakeAnOptimizersStateForNames) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("model").empty_dict().mark();
  put_w(pickle);
  pickle.set_items().string("state").empty_dict().mark().integer(0).empty_dict().mark();
  put_w(pickle, "exp_avg");
  pickle.set_items().set_items().set_items().stop();
  const auto checkpoint = open_bytes(zip_of(pickle));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w"));
}

TEST(TorchZip, ReadsOrderedDictsOfPairsAsPython2WroteThem) {
  PickleBuilder pickle;
  pickle.proto().global("collections", "OrderedDict").empty_list().mark().empty_list().mark();
  put_w(pickle);
  pickle.append_items().append_items().op('\x85').reduce().stop();
  const auto checkpoint = open_bytes(zip_of(pickle));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w"));
}

TEST(TorchZip, UnwrapsParametersAndSubclasses) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("p");
  pickle.global("torch._utils", "_rebuild_parameter").mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.boolean(true).ordered_dict().tuple().reduce();
  pickle.string("s").global("torch._tensor", "_rebuild_from_type_v2").mark();
  pickle.global("torch._utils", "_rebuild_tensor_v2").global("my", "Tensor").mark();
  pickle.mark().string("storage").global("torch", "FloatStorage").string("0").string("cuda:0");
  pickle.integer(4).tuple().persistent_id().integer(0).integers({4}).integers({1});
  pickle.boolean(false).ordered_dict().tuple().empty_dict().tuple().reduce();
  pickle.set_items().stop();
  const auto checkpoint = open_bytes(zip_of(pickle));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("p", "s"));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({1, 2, 3, 4}));
}

TEST(TorchZip, ReportsUnknownObjectsAndReachesTensorsInsideThem) {
  PickleBuilder pickle;
  pickle.proto().global("evil", "Model").empty_tuple().new_object().empty_dict().mark();
  put_w(pickle, "weight");
  pickle.set_items().build().stop();
  const auto checkpoint = open_bytes(zip_of(pickle), {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("weight"));
  ASSERT_EQ(checkpoint->opaque_objects().size(), 1U);
  EXPECT_EQ(checkpoint->opaque_objects()[0].type, "evil.Model");
  EXPECT_THAT(open_bytes(zip_of(pickle)),
              FailsWith(ErrorCode::kNotFound, "'evil.Model', not a dict that maps names"));
}

TEST(TorchZip, ListsABareTensorUnderTheEmptyPath) {
  PickleBuilder pickle;
  pickle.proto();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.stop();
  const auto checkpoint = open_bytes(zip_of(pickle), {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre(""));
  EXPECT_THAT(open_bytes(zip_of(pickle)),
              FailsWith(ErrorCode::kNotFound, "one tensor without a name"));
}

TEST(TorchZip, ReadsBigEndianStorages) {
  const std::string one = {'\x3f', '\x80', '\0', '\0'};
  const auto checkpoint = open_bytes(
      torch_zip({{.name = "w", .shape = {2}, .bytes = one + one}}, {.byte_order = "big"}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 1}));
  EXPECT_EQ(checkpoint->plain_range(0), std::nullopt);
  std::string middle(3, '\0');  // cuts both elements
  EXPECT_THAT(checkpoint->read(0, 3, std::as_writable_bytes(std::span(middle))), IsOk());
  EXPECT_EQ(middle, f32({1, 1}).substr(3, 3));
}

TEST(TorchZip, InflatesCompressedStorages) {
  const std::string values = f32(std::vector<float>(100'000, 2));
  const auto checkpoint = open_bytes(
      torch_zip({{.name = "w", .shape = {100'000}, .bytes = values}}, {.deflated = true}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->plain_range(0), std::nullopt);
  EXPECT_EQ(read_all(*checkpoint, 0), values);
  EXPECT_THAT(checkpoint->check_storage(0), IsOk());
}

TEST(TorchZip, ReadsTransposedExpandedAndSlicedViews) {
  const auto checkpoint = open_bytes(torch_zip({
      {.name = "w", .shape = {2, 3}, .bytes = f32({1, 2, 3, 4, 5, 6})},
      {.name = "t", .shape = {3, 2}, .strides = {{1, 3}}, .shares = "w"},
      {.name = "e", .shape = {2, 2}, .strides = {{0, 1}}, .offset = 4, .shares = "w"},
      {.name = "s", .shape = {2}, .strides = {{3}}, .offset = 1, .shares = "w"},
      {.name = "scalar", .shape = {}, .offset = 5, .shares = "w"},
      {.name = "none", .shape = {0, 3}, .offset = 99, .shares = "w"},
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 1), f32({1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(read_all(*checkpoint, 2), f32({5, 6, 5, 6}));
  EXPECT_EQ(read_all(*checkpoint, 3), f32({2, 5}));
  EXPECT_EQ(read_all(*checkpoint, 4), f32({6}));
  EXPECT_EQ(checkpoint->plain_range(5)->length, 0U);
}

TEST(TorchZip, LimitsWhatExpandedViewsMayGrowTo) {
  const auto bytes =
      torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})},
                 {.name = "e", .shape = {20'000'000}, .strides = {{0}}, .shares = "w"}});
  EXPECT_THAT(open_bytes(bytes), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
  EXPECT_THAT(open_bytes(bytes, {.max_expand = 1'000'000}), IsOk());
}

TEST(TorchZip, CountsTheSameExpandedViewOnce) {
  const auto with_second_view = [](std::int64_t elements) {
    return open_bytes(
        torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})},
                   {.name = "e", .shape = {16'000'000}, .strides = {{0}}, .shares = "w"},
                   {.name = "g", .shape = {16, 1'000'000}, .strides = {{0, 0}}, .shares = "w"},
                   {.name = "f", .shape = {elements}, .strides = {{0}}, .shares = "w"}}));
  };
  EXPECT_THAT(with_second_view(16'000'000), IsOk());
  EXPECT_THAT(with_second_view(15'999'999), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
}

TEST(TorchZip, DoesNotCountInflatedBytesAsBytesBehindAView) {
  const auto zeros = [](std::int64_t elements) {
    return torch_zip({{.name = "w",
                       .shape = {elements},
                       .bytes = std::string(static_cast<std::size_t>(elements) * 4, '\0')}},
                     {.deflated = true});
  };
  EXPECT_THAT(open_bytes(zeros((64 << 20) / 4)), IsOk());
  const std::string larger = zeros((64 << 20) / 4 + 1);
  EXPECT_THAT(open_bytes(larger), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
  EXPECT_THAT(open_bytes(larger, {.max_expand = 2000}), IsOk());
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(TorchZip, InflatesAllStoragesIntoOneFile) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 50; ++i) {
    tensors.push_back({.name = std::to_string(i),
                       .shape = {300},
                       .bytes = f32(std::vector<float>(300, static_cast<float>(i)))});
  }
  const auto checkpoint = open_bytes(torch_zip(tensors, {.deflated = true}));
  ASSERT_THAT(checkpoint, IsOk());
  const std::size_t before = open_descriptors();
  for (std::size_t i = tensors.size(); i-- > 0;) {
    EXPECT_EQ(read_all(*checkpoint, i), tensors[i].bytes) << i;
  }
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST(TorchZip, ReportsADamagedStorage) {
  auto bytes = torch_zip({{.name = "w", .shape = {4}, .bytes = f32({1, 2, 3, 4})}});
  bytes[bytes.find(f32({1, 2, 3, 4}))] ^= 1;
  const auto checkpoint = open_bytes(bytes);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->check_storage(0), FailsWith(ErrorCode::kCorrupt, "CRC-32 differs"));
}

TEST(TorchZip, AcceptsStoragesWithoutACrc) {
  const auto checkpoint =
      open_bytes(torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}}, {.with_crc = false}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->storages()[0].crc32, std::nullopt);
  EXPECT_THAT(checkpoint->check_storage(0), IsOk());
}

// As inside torch.serialization.skip_data(): the records of storages have no CRC-32, others have.
std::string saved_without_data(const std::vector<std::string>& storages) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto count = static_cast<std::int64_t>(storages[i].size());
    pickle.string("w" + std::to_string(i));
    put_tensor(pickle, {.dtype = DType::kUInt8, .shape = {count}}, std::to_string(i),
               storages[i].size());
  }
  pickle.set_items().stop();
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.bytes()});
  for (std::size_t i = 0; i < storages.size(); ++i) {
    zip.add({.name = "a/data/" + std::to_string(i),
             .data = storages[i],
             .central_lie = [](ZipFields& fields) { fields.crc = 0; }});
  }
  return zip.finish();
}

TEST(TorchZip, RefusesAFileThatWasSavedWithoutItsData) {
  const auto bytes = saved_without_data({std::string(5000, '\0'), "", std::string(8, '\0')});
  EXPECT_THAT(open_bytes(bytes),
              FailsWith(ErrorCode::kUnsupported,
                        "'w0': its file was saved without data (torch.serialization.skip_data) and "
                        "was not filled later; fill the file, or save it again"));
  const auto listed = open_bytes(bytes, {.selection = Selection::kEverything});
  EXPECT_THAT(names(listed), ElementsAre("w1"));
  EXPECT_EQ(listed->refused_tensors().size(), 2U);
}

TEST(TorchZip, ReadsAFileThatWasFilledAfterItWasSavedWithoutItsData) {
  for (const std::size_t place : {std::size_t{0}, std::size_t{10'000}, std::size_t{19'999}}) {
    std::string second(20'000, '\0');
    second[place] = 'x';
    const auto filled = open_bytes(saved_without_data({std::string(8, '\0'), second}));
    ASSERT_THAT(filled, IsOk());
    EXPECT_EQ(read_all(*filled, 1), second);
  }
}

TEST(TorchZip, ReadsZerosThatHaveACrc) {
  const auto checkpoint =
      open_bytes(torch_zip({{.name = "w", .shape = {4}, .bytes = f32({0, 0, 0, 0})}}));
  ASSERT_THAT(checkpoint, IsOk());
}

std::string zip_with(const std::string& record, const std::string& data = "hello") {
  ZipBuilder zip;
  zip.add({.name = record, .data = data});
  return zip.finish();
}

TEST(TorchZip, RefusesOtherZipFilesByName) {
  EXPECT_THAT(open_bytes(zip_with("a/readme.txt")),
              FailsWith(ErrorCode::kUnsupported, "not a PyTorch checkpoint"));
  EXPECT_THAT(
      open_bytes(zip_with("readme.txt")),
      FailsWith(ErrorCode::kUnsupported, "not a PyTorch checkpoint; it contains 'readme.txt'"));
  EXPECT_THAT(open_bytes(zip_with("data.pkl", "N.")),
              FailsWith(ErrorCode::kUnsupported, "repacked without its folder"));
  EXPECT_THAT(open_bytes(zip_with("a/model.json")),
              FailsWith(ErrorCode::kUnsupported, "TorchScript archive of torch 1.0 to 1.2"));
  EXPECT_THAT(open_bytes(zip_with("a/.data/extern_modules")),
              FailsWith(ErrorCode::kUnsupported, "torch.package"));
}

TEST(TorchZip, RefusesUnknownByteOrdersAndVersions) {
  EXPECT_THAT(open_bytes(torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}},
                                   {.byte_order = "middle"})),
              FailsWith(ErrorCode::kCorrupt, "neither 'little' nor 'big'"));
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = "N."});
  zip.add({.name = "a/version", .data = "11\n"});
  EXPECT_THAT(open_bytes(zip.finish()), FailsWith(ErrorCode::kUnsupported, "version '11"));
}

// One tensor "w" whose record has 16 bytes, with a lie in its declaration.
Result<Checkpoint> open_lie(const TestTensor& tensor, std::uint64_t declared = 16,
                            const std::string& key = "0") {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_tensor(pickle, tensor, key, declared);
  pickle.set_items().stop();
  return open_bytes(zip_of(pickle));
}

TEST(TorchZip, RefusesTensorsThatReachOutsideTheirStorage) {
  const std::int64_t huge = INT64_MAX;
  const std::vector<TestTensor> lies = {
      {.shape = {5}},
      {.shape = {4}, .offset = 1},
      {.shape = {2}, .strides = {{4}}},
      {.shape = {2}, .strides = {{huge}}},
      {.shape = {huge}},
      {.shape = {std::int64_t{1} << 32, std::int64_t{1} << 32}},
      {.shape = {1}, .offset = huge},
      {.shape = {-1}},
      {.shape = {2}, .strides = {{-1}}, .offset = 3},
      {.shape = {1}, .offset = -1},
      {.shape = {2, 2}, .strides = {{1}}},
  };
  for (const TestTensor& lie : lies) {
    EXPECT_THAT(open_lie(lie), FailsWith(ErrorCode::kCorrupt, "tensor 'w'"))
        << shape_text(lie.shape);
  }
}

TEST(TorchZip, RefusesAStorageOfAnotherSizeThanItsRecord) {
  EXPECT_THAT(open_lie({.shape = {1}}, 12), FailsWith(ErrorCode::kCorrupt, "has 16 bytes"));
  EXPECT_THAT(open_lie({.shape = {1}}, 20), FailsWith(ErrorCode::kCorrupt, "has 16 bytes"));
}

TEST(TorchZip, RefusesAMissingRecord) {
  EXPECT_THAT(open_lie({.shape = {1}}, 16, "7"), FailsWith(ErrorCode::kCorrupt, "is missing"));
}

TEST(TorchZip, RefusesTwinNames) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  put_w(pickle);
  put_w(pickle);
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)),
              FailsWith(ErrorCode::kCorrupt, "two values have the name 'w'"));
}

TEST(TorchZip, RejectsADuplicateKeyWhoseLaterValueIsNotATensor) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  put_w(pickle);
  pickle.string("w").integer(5).set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)),
              FailsWith(ErrorCode::kCorrupt, "two values have the name 'w'"));
  EXPECT_THAT(open_bytes(zip_of(pickle), {.key = "."}),
              FailsWith(ErrorCode::kCorrupt, "two values have the name 'w'"));
}

TEST(TorchZip, TakesTheItemsOfTheDictThatAnOrderedDictIsMadeFrom) {
  PickleBuilder pickle;
  pickle.proto().global("collections", "OrderedDict").empty_dict().mark();
  put_w(pickle, "v");
  pickle.set_items().op('\x85').reduce().mark();
  put_w(pickle, "w");
  pickle.set_items().stop();
  const auto checkpoint = open_bytes(zip_of(pickle));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("v", "w"));
}

TEST(TorchZip, RefusesAnOrderedDictOfAnythingButPairs) {
  PickleBuilder triple;
  triple.proto().global("collections", "OrderedDict").empty_list().mark().mark();
  put_w(triple, "v");
  triple.integer(1).tuple().append_items().op('\x85').reduce().mark();
  put_w(triple, "w");
  triple.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(triple)), FailsWith(ErrorCode::kUnsupported, "not a pair"));
  PickleBuilder number;
  number.proto().global("collections", "OrderedDict").integer(1).op('\x85').reduce().mark();
  put_w(number);
  number.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(number)), FailsWith(ErrorCode::kUnsupported, "neither from pairs"));
}

TEST(TorchZip, BoundsTheExpansionOfASharedList) {
  constexpr int kMany = 2000;
  PickleBuilder pickle;  // kMany OrderedDicts, all made from one list of kMany pairs
  pickle.proto().global("collections", "OrderedDict").put(0).op('0').empty_list().put(1).mark();
  for (int i = 0; i < kMany; ++i) {
    pickle.integer(i).none().op('\x86');
  }
  pickle.append_items().op('0').empty_dict().mark();
  for (int i = 0; i < kMany; ++i) {
    pickle.string(std::to_string(i)).get(0).get(1).op('\x85').reduce();
  }
  put_w(pickle);
  pickle.set_items().stop();
  for (const Selection selection : {Selection::kStateDict, Selection::kEverything}) {
    EXPECT_THAT(open_bytes(zip_of(pickle), {.selection = selection}),
                FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
  }
}

TEST(TorchZip, BoundsTheUseOfOneLongKeyInManyMappings) {
  PickleBuilder pickle;
  pickle.proto().string(std::string(100'000, 'k')).put(0).op('0').empty_dict().mark();
  for (int i = 0; i < 1000; ++i) {
    pickle.string(std::to_string(i)).empty_dict().mark().get(0).none().set_items();
  }
  put_w(pickle);
  pickle.set_items().stop();
  for (const Selection selection : {Selection::kStateDict, Selection::kEverything}) {
    EXPECT_THAT(open_bytes(zip_of(pickle), {.selection = selection}),
                FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
  }
}

TEST(TorchZip, CutsLongTypeNames) {
  PickleBuilder pickle;
  pickle.proto().global(std::string(100'000, 'm'), std::string(100'000, 'n')).stop();
  const auto checkpoint = open_bytes(zip_of(pickle), {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->opaque_objects()[0].type,
            std::string(256, 'm') + "." + std::string(256, 'n'));
}

TEST(TorchZip, RefusesItemsSetOnATensor) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  put_w(pickle);
  pickle.string("key").integer(1).op('s').set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kCorrupt, "adds items to a tensor"));
}

TEST(TorchZip, RefusesNamesThatAreNotUtf8) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  put_w(pickle, "w\xff");
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, "not UTF-8"));
}

// One tensor "w" of four floats; `metadata` adds the seventh argument of its rebuild call.
PickleBuilder rebuilt_with(const std::function<void(PickleBuilder&)>& metadata) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().string("storage").global("torch", "FloatStorage").string("0").string("cpu");
  pickle.integer(4).tuple().persistent_id().integer(0).integers({4}).integers({1});
  pickle.boolean(false).ordered_dict();
  metadata(pickle);
  pickle.tuple().reduce().set_items().stop();
  return pickle;
}

TEST(TorchZip, RefusesLazyBitsThatAnOrderedDictOfPairsHides) {
  const PickleBuilder pickle = rebuilt_with([](PickleBuilder& p) {
    p.global("collections", "OrderedDict").empty_list().mark().mark().string("neg").boolean(true);
    p.tuple().append_items().op('\x85').reduce();
  });
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, "not a dict"));
  EXPECT_THAT(open_bytes(zip_of(rebuilt_with([](PickleBuilder& p) { p.none(); }))), IsOk());
  EXPECT_THAT(open_bytes(zip_of(rebuilt_with([](PickleBuilder& p) { p.empty_dict(); }))), IsOk());
}

TEST(TorchZip, RefusesMetadataWithManyEntries) {
  const PickleBuilder pickle = rebuilt_with([](PickleBuilder& p) {
    p.empty_dict().mark();
    for (int i = 0; i < 9; ++i) {
      p.integer(i).boolean(false);
    }
    p.set_items();
  });
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, "at most 8 entries"));
}

// A tensor "w" with a state, or a parameter of such a tensor.
std::string zip_with_state(const std::function<void(PickleBuilder&)>& state, bool in_parameter) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  if (in_parameter) {
    pickle.global("torch._utils", "_rebuild_parameter").mark();
  }
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  state(pickle);
  pickle.build();
  if (in_parameter) {
    pickle.boolean(true).ordered_dict().tuple().reduce();
  }
  return zip_of(pickle.set_items().stop());
}

TEST(TorchZip, RefusesAStateThatReplacesTheBytesOfATensor) {
  for (const bool in_parameter : {false, true}) {
    EXPECT_THAT(open_bytes(zip_with_state(
                    [](PickleBuilder& p) {
                      p.mark().mark().string("storage").global("torch", "FloatStorage");
                      p.string("0").string("cpu").integer(4).tuple().persistent_id();
                      p.integer(2).integers({2}).integers({1}).tuple();
                    },
                    in_parameter)),
                FailsWith(ErrorCode::kUnsupported, "its state is not a dict"));
    EXPECT_THAT(
        open_bytes(zip_with_state(
            [](PickleBuilder& p) { p.empty_dict().mark().string("data").none().set_items(); },
            in_parameter)),
        FailsWith(ErrorCode::kUnsupported, "sets 'data'"));
    EXPECT_THAT(open_bytes(zip_with_state(
                    [](PickleBuilder& p) {
                      p.mark().empty_dict().mark().string("tag").integer(1).set_items();
                      p.none().tuple();
                    },
                    in_parameter)),
                IsOk());
  }
}

TEST(TorchZip, RefusesItemsSetOnTheTensorInsideAParameter) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("p");
  pickle.global("torch._utils", "_rebuild_parameter").mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.string("key").integer(1).op('s').boolean(true).ordered_dict().tuple().reduce();
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kCorrupt, "adds items to a tensor"));
}

TEST(TorchZip, RefusesTheStateOfAParameterThatReplacesItsData) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("p");
  pickle.global("torch._utils", "_rebuild_parameter_with_state").mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.boolean(true).ordered_dict().empty_dict().mark().string("data").none().set_items();
  pickle.tuple().reduce().set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, "sets 'data'"));
}

// A tensor "w" of floats that torch makes on a device, converted to `dtype`.
std::string zip_of_device_tensor(const std::string& dtype) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  pickle.global("torch._utils", "_rebuild_device_tensor_from_cpu_tensor").mark();
  put_tensor(pickle, {.shape = {4}}, "0", 16);
  pickle.global("torch", dtype).string("xla:0").boolean(false).tuple().reduce();
  return zip_of(pickle.set_items().stop());
}

TEST(TorchZip, RefusesATensorThatIsConvertedWhenItIsLoaded) {
  EXPECT_THAT(open_bytes(zip_of_device_tensor("float32")), IsOk());
  EXPECT_THAT(open_bytes(zip_of_device_tensor("float16")),
              FailsWith(ErrorCode::kUnsupported, "stored as float32 and converted to float16"));
}

TEST(TorchZip, NamesTensorsThatItCannotRead) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"_rebuild_meta_tensor_no_storage", "a meta tensor, which has no data; load the weights"},
      {"_rebuild_wrapper_subclass",
       "wraps other tensors (such as DTensor), saved without these tensors; save"},
      {"_rebuild_nested_tensor", "a nested tensor; save the tensors of its unbind()"}};
  for (const auto& [function, word] : kinds) {
    PickleBuilder pickle;
    pickle.proto().empty_dict().mark().string("q").global("torch._utils", function);
    pickle.empty_tuple().reduce();
    put_w(pickle);
    pickle.set_items().stop();
    EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, word));
    const auto listed = open_bytes(zip_of(pickle), {.selection = Selection::kEverything});
    ASSERT_THAT(listed, IsOk());
    EXPECT_THAT(names(*listed), ElementsAre("w"));
    ASSERT_EQ(listed->refused_tensors().size(), 1U);
    EXPECT_EQ(listed->refused_tensors()[0].path, "q");
  }
}

TEST(TorchZip, BoundsTheWalkOfADagBomb) {
  PickleBuilder pickle;
  pickle.proto().empty_list().put(0);
  for (std::uint32_t i = 1; i < 60; ++i) {
    pickle.empty_list().mark().get(i - 1).get(i - 1).append_items().put(i);
  }
  pickle.stop();
  EXPECT_THAT(open_bytes(zip_of(pickle), {.selection = Selection::kEverything}),
              FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
}

TEST(TorchZip, CutsCyclesAndRefusesAbsurdNesting) {
  PickleBuilder cycle;
  cycle.proto().empty_dict().put(0).mark();
  put_w(cycle);
  cycle.string("self").get(0).set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(cycle)), IsOk());
  EXPECT_THAT(open_bytes(zip_of(cycle), {.selection = Selection::kEverything}), IsOk());
  PickleBuilder deep;
  deep.none().raw(std::string(100'000, '\x85')).stop();
  EXPECT_THAT(open_bytes(zip_of(deep), {.selection = Selection::kEverything}),
              FailsWith(ErrorCode::kUnsupported, "nested deeper"));
}

TEST(TorchZip, NoticesAFileThatChangedSinceItWasOpened) {
  const TempDir dir;
  const std::vector<std::filesystem::path> paths{
      dir.write("c.pt", torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}}))};
  const auto checkpoint = open_checkpoint(paths);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->check_unchanged(), IsOk());
  dir.write("c.pt", "shorter");
  EXPECT_FALSE(checkpoint->check_unchanged().has_value());
}

}  // namespace
}  // namespace onnx_external
