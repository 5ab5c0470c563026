// The files of HQQ's save_quantized(): a dict of modules, with plain values next to the tensors.
#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "support/torch_file.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

using Put = std::function<void(PickleBuilder&)>;
using Entries = std::map<std::string, Put>;

const std::string kHqqCodes = {1, 2, 3, 4};
const std::string kHqqFloats = f32({0.5F, 2.0F, 1.0F, 4.0F});

Put hqq_tensor(DType dtype, Shape shape, const std::string& storage, std::int64_t offset = 0) {
  return [=](PickleBuilder& pickle) {
    put_tensor(pickle, {.dtype = dtype, .shape = shape, .offset = offset}, storage,
               storage == "0" ? kHqqCodes.size() : kHqqFloats.size());
  };
}

Put hqq_text(const std::string& value) {
  return [=](PickleBuilder& pickle) { pickle.string(value); };
}
Put hqq_number(std::int64_t value) {
  return [=](PickleBuilder& pickle) { pickle.integer(value); };
}
Put hqq_flag(bool value) {
  return [=](PickleBuilder& pickle) { pickle.boolean(value); };
}
Put hqq_size_of(const std::vector<std::int64_t>& shape) {
  return [=](PickleBuilder& pickle) {
    pickle.global("torch", "Size").mark().integers(shape).tuple().reduce();
  };
}
Put hqq_dict(const Entries& entries) {
  return [=](PickleBuilder& pickle) {
    pickle.empty_dict().mark();
    for (const auto& [key, put] : entries) {
      put(pickle.string(key));
    }
    pickle.set_items();
  };
}

// Codes 1, 2, 3, 4 of 8 bits in groups of two, with the scales 0.5 and 2 and the zeros 1 and 4.
const Entries kMeta = {
    {"axis", hqq_number(1)},
    {"compute_dtype", [](PickleBuilder& pickle) { pickle.global("torch", "float32"); }},
    {"group_size", hqq_number(2)},
    {"nbits", hqq_number(8)},
    {"packing", hqq_text("8bit_u8")},
    {"quant_scale", hqq_flag(false)},
    {"quant_zero", hqq_flag(false)},
    {"scale", hqq_tensor(DType::kFloat32, {2, 1}, "1")},
    {"shape", hqq_size_of({2, 2})},
    {"zero", hqq_tensor(DType::kFloat32, {2, 1}, "1", 2)},
};
const Put kWords = hqq_tensor(DType::kUInt8, {2, 2}, "0");
const Put kBias = hqq_tensor(DType::kFloat32, {2}, "1");

Entries with_entry(Entries entries, const std::string& key, const Put& put) {
  entries[key] = put;
  return entries;
}
Entries without_entry(Entries entries, const std::string& key) {
  entries.erase(key);
  return entries;
}
const Entries kModule = with_entry(kMeta, "W_q", kWords);

Result<Checkpoint> open_modules(const Entries& modules, const OpenOptions& options = {}) {
  PickleBuilder pickle;
  pickle.proto();
  hqq_dict(modules)(pickle);
  pickle.stop();
  return open_bytes(zip_of(pickle, {kHqqCodes, kHqqFloats}), options);
}

void expect_weight(const Result<Checkpoint>& checkpoint, const std::vector<std::string>& listed) {
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(names(*checkpoint), listed);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i].ends_with("a.weight")) {
      EXPECT_EQ(checkpoint->tensors()[i].shape, (Shape{2, 2}));
      EXPECT_EQ(read_all(*checkpoint, i), f32({0, 0.5F, -2, 0}));
    }
  }
}

TEST(HqqModules, AFileOfModulesIsReadAsOneStateDict) {
  expect_weight(open_modules({{"m.a", hqq_dict(with_entry(kModule, "bias", kBias))},
                              {"m.b", hqq_dict({{"w", kBias}})}}),
                {"m.a.weight", "m.a.bias", "m.b.w"});
}

TEST(HqqModules, OlderFilesKeepTheValuesInADictInside) {
  const Entries module = {{"W_q", kWords}, {"bias", kBias}, {"meta", hqq_dict(kMeta)}};
  expect_weight(open_modules({{"a", hqq_dict(module)}}), {"a.weight", "a.bias"});
}

TEST(HqqModules, AListingAndTheKeyOfTheRootHaveTheSameNames) {
  expect_weight(open_modules({{"a", hqq_dict(kModule)}}, {.key = "."}), {"a.weight"});
  expect_weight(open_modules({{"a", hqq_dict(kModule)}}, {.selection = Selection::kEverything}),
                {"a.weight"});
}

Entries with_quantized_zeros(const Put& scale, const Put& zero) {
  Entries module = with_entry(without_entry(kModule, "zero"), "quant_zero", hqq_flag(true));
  module["zero_q"] = hqq_tensor(DType::kUInt8, {2, 1}, "0");
  module["meta_zero"] = hqq_dict({{"axis", hqq_number(0)}, {"scale", scale}, {"zero", zero}});
  return module;
}

TEST(HqqModules, ZeroPointsThatAreQuantizedThemselvesAreRead) {
  // The codes 1 and 2 stand for (1 - 0.5) * 2 = 1 and (2 - 0.5) * 2 = 3.
  const auto one = [](std::int64_t at) { return hqq_tensor(DType::kFloat32, {}, "1", at); };
  const auto checkpoint = open_modules({{"a", hqq_dict(with_quantized_zeros(one(1), one(0)))}});
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_THAT(names(*checkpoint), ElementsAre("a.weight"));
  EXPECT_EQ(read_all(*checkpoint, 0), f32({0, 0.5F, 0, 2}));
}

TEST(HqqModules, QuantizedZeroPointsWithoutTheirOwnScaleAreAnError) {
  const auto three = hqq_tensor(DType::kFloat32, {3}, "1");
  const Put none = [](PickleBuilder& pickle) { pickle.none(); };
  for (const Put& scale : {hqq_number(1), three, none}) {
    EXPECT_THAT(open_modules({{"a", hqq_dict(with_quantized_zeros(scale, three))}}),
                FailsWith(ErrorCode::kCorrupt,
                          "'a.zero_q': 'meta_zero.scale' or "
                          "'meta_zero.zero' of the module is missing"));
  }
  EXPECT_THAT(open_modules({{"a", hqq_dict(with_entry(kModule, "quant_scale", hqq_flag(true)))}}),
              FailsWith(ErrorCode::kUnsupported,
                        "HQQ weight 'a': its scales or zero points are quantized themselves, but "
                        "it has no 'scale_q'"));
}

TEST(HqqModules, AModuleThatLacksAPartIsAnError) {
  for (const std::string key : {"scale", "zero", "shape", "W_q"}) {
    const Entries modules = {{"a", hqq_dict(without_entry(kModule, key))},
                             {"b", hqq_dict(kModule)}};
    EXPECT_THAT(open_modules(modules), key == "W_q"
                                           ? testing::Matcher<const Result<Checkpoint>&>(IsOk())
                                           : FailsWith(ErrorCode::kCorrupt,
                                                       "HQQ weight 'a': its W_q, shape, scale or "
                                                       "zero is missing"));
  }
  EXPECT_THAT(open_modules({{"a", hqq_dict(without_entry(kModule, "packing"))}}),
              FailsWith(ErrorCode::kCorrupt, "HQQ weight 'a': has no text 'packing'"));
}

TEST(HqqModules, ValuesOfOtherTypesAreAnError) {
  for (const auto& [key, put, message] : std::vector<std::tuple<std::string, Put, std::string>>{
           {"packing", hqq_number(8), "has no text 'packing'"},
           {"packing", hqq_text("9bit"), "is packed as '9bit', which is not supported"},
           {"axis", hqq_text("1"), "has no number 'axis'"},
           {"axis", hqq_number(-1), "HQQ weight 'a': 'axis' is -1, but must be 0 or 1"},
           {"group_size", hqq_text("2"), "has no number 'group_size'"},
           {"shape", hqq_number(4), "shape, scale or zero is missing"},
           {"shape", hqq_size_of({2, -2}), "is not the shape of a matrix"},
           {"shape", hqq_size_of({2, 8}), "'a.weight'"},
           {"scale", hqq_text("1"), "shape, scale or zero is missing"}}) {
    const auto opened = open_modules({{"a", hqq_dict(with_entry(kModule, key, put))}});
    ASSERT_FALSE(opened) << key;
    EXPECT_THAT(opened.error().message, testing::HasSubstr(message));
  }
}

TEST(HqqModules, TwoModulesWithTheSameNamesAreDamage) {
  EXPECT_THAT(open_modules({{"a", hqq_dict(with_entry(kModule, "b.W_q", kWords))},
                            {"a.b", hqq_dict(kModule)}}),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name 'a.b.W_q'"));
}

TEST(HqqModules, AParameterOfAttentionWithTheNameOfTheCodesIsATensorLikeOthers) {
  const Put attention = hqq_dict({{"W_k", kBias}, {"W_q", kBias}});
  const auto alone = open_modules({{"state_dict", attention}});
  ASSERT_THAT(alone, IsOk());
  EXPECT_THAT(names(*alone), ElementsAre("W_k", "W_q"));
  const auto beside = open_modules({{"a", hqq_dict(kModule)}, {"b", attention}});
  ASSERT_THAT(beside, IsOk());
  EXPECT_THAT(names(*beside), ElementsAre("a.weight", "b.W_k", "b.W_q"));
}

TEST(HqqModules, QuantizedZeroPointsAlongAnUnknownAxisAreRefused) {
  Entries module = with_quantized_zeros(kBias, kBias);
  module["meta_zero"] = hqq_dict({{"axis", hqq_number(2)}, {"scale", kBias}, {"zero", kBias}});
  EXPECT_THAT(open_modules({{"a", hqq_dict(module)}}),
              FailsWith(ErrorCode::kUnsupported, "'meta_zero.axis' is 2, but must be 0 or 1"));
}

TEST(HqqModules, ScalesThatExpandFarBeyondTheFileAreRefusedBeforeTheyAreRead) {
  constexpr std::int64_t kMany = std::int64_t{1} << 36;
  const auto expanded = [](DType dtype, const std::string& storage) {
    return [=](PickleBuilder& pickle) {
      put_tensor(pickle, {.dtype = dtype, .shape = {kMany}, .strides = Shape{0}}, storage,
                 storage == "0" ? kHqqCodes.size() : kHqqFloats.size());
    };
  };
  Entries module =
      with_quantized_zeros(expanded(DType::kFloat32, "1"), expanded(DType::kFloat32, "1"));
  module["zero_q"] = expanded(DType::kUInt8, "0");
  EXPECT_THAT(open_modules({{"a", hqq_dict(module)}}),
              FailsWith(ErrorCode::kUnsupported, "the tensors take up"));
}

TEST(HqqModules, OneModuleUnderVeryManyNamesIsRefused) {
  constexpr int kMany = 100'000;
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("0");
  hqq_dict({{"W_q", kWords}, {"axis", hqq_number(1)}, {"packing", hqq_text("8bit_u8")}})(pickle);
  pickle.put(0);
  for (int i = 1; i < kMany; ++i) {
    pickle.string(std::to_string(i)).get(0);
  }
  pickle.set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle, {kHqqCodes, kHqqFloats})),
              FailsWith(ErrorCode::kUnsupported, "larger than its file allows"));
}

TEST(HqqModules, OtherDictsOfDictsStaySeveralDicts) {
  EXPECT_THAT(open_modules({{"a", hqq_dict({{"w", kBias}})}, {"b", hqq_dict({{"w", kBias}})}}),
              FailsWith(ErrorCode::kAmbiguous, "several dicts"));
  EXPECT_THAT(
      open_modules({{"a", hqq_dict(kModule)}, {"b", hqq_dict(kModule)}, {"c", hqq_number(1)}}),
      FailsWith(ErrorCode::kAmbiguous, "several dicts"));
}

}  // namespace
}  // namespace onnx_external
