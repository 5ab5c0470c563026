// Every way in which a GGUF file can lie: each is refused with an error that says where.
#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "support/gguf_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using ::testing::HasSubstr;

template <typename Number>
std::string number(Number value) {
  return GgufBuilder::number(value);
}
std::string type(std::uint32_t id) {
  return number(id);
}

Result<Checkpoint> open_gguf(const TempDir& dir, const std::string& bytes) {
  const auto path = dir.path() / "m.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return open_checkpoint(std::vector{path});
}

struct Lie {
  std::string name;
  std::string bytes;
  std::string words;  // of the error
};

// The file with other bytes in the place of those.
std::string replaced(std::string file, const std::string& from, const std::string& to) {
  const std::size_t at = file.find(from);
  return at == std::string::npos ? std::string() : file.replace(at, to.size(), to);
}

std::string changed(const std::string& from, const std::string& to) {
  return replaced(tiny_gguf().bytes(), from, to);
}

std::string with_key(const std::string& value) {
  return tiny_gguf().key("x", value).bytes();
}

// The model with one tensor more.
std::string with_tensor(std::vector<std::uint64_t> dims, std::uint32_t id, std::string bytes) {
  return tiny_gguf().tensor({"x.weight", std::move(dims), id, std::move(bytes)}).bytes();
}

// The bytes of a key of `tiny_gguf` up to its number.
std::string key(const std::string& name, std::uint32_t value) {
  return GgufBuilder::text(name) + type(4) + number(value);
}

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kHuge = std::uint64_t{1} << 61;

// A tensor of `tiny_gguf` up to its type.
const std::string kFfnUp = std::string("blk.0.ffn_up.weight") + type(2) + number(std::uint64_t{8}) +
                           number(std::uint64_t{32});

std::vector<Lie> container_lies() {
  const std::string start = std::string("GGUF") + number(std::uint32_t{3});
  return {
      {"Version", changed(number(std::uint32_t{3}), number(std::uint32_t{1})), "version 1"},
      {"VersionAlone", changed(number(std::uint32_t{3}), std::string("\0\0\0\x03", 4)), "keys"},
      {"TensorCount", replaced(tiny_gguf().bytes(), start, start + number(kHuge)), "tensors"},
      {"KeyCount",
       replaced(tiny_gguf().bytes(), start, start + number(std::uint64_t{12}) + number(kMax)),
       "number of keys"},
      {"NothingBehind", start + number(std::uint64_t{1}) + number(std::uint64_t{1}),
       "0 bytes left"},
      {"KeyLength",
       start + number(std::uint64_t{0}) + number(std::uint64_t{1}) + number(kMax) +
           std::string(64, 'x'),
       "key 0"},
      {"ValueType", with_key(type(13)), "its type is 13"},
      {"ArrayType", with_key(type(9) + type(13) + number(std::uint64_t{0})), "its type is 13"},
      {"ArrayOfArrays", with_key(type(9) + type(9) + number(std::uint64_t{0})), "array of arrays"},
      {"ArrayCount", with_key(type(9) + type(4) + number(std::uint64_t{1} << 40)), "should follow"},
      {"ArrayWraps", with_key(type(9) + type(8) + number(kHuge)), "should follow"},
      {"TextLength", with_key(type(8) + number(kMax)), "should follow"},
      {"Bool", with_key(type(7) + "\x02"), "a bool is 2"},
      {"KeyTwice", tiny_gguf().uint("llama.block_count", 1).bytes(), "occurs twice"},
      {"KeyNotText", tiny_gguf().uint("a\xff", 1).bytes(), "not UTF-8"},
      {"Alignment0", tiny_gguf().uint("general.alignment", 0).bytes(), "power of two"},
      {"Alignment3", tiny_gguf().uint("general.alignment", 3).bytes(), "power of two"},
      {"AlignmentText", tiny_gguf().string("general.alignment", "32").bytes(), "power of two"},
      {"TokenTwice", changed("a" + GgufBuilder::text("b"), "b"), "a token twice"},
      {"ScoresFewer",
       tiny_gguf()
           .key("tokenizer.ggml.scores", type(9) + type(6) + number(std::uint64_t{0}))
           .bytes(),
       "there are 3 tokens"},
      {"ScoresAreTexts", tiny_gguf().strings("tokenizer.ggml.scores", {"1", "2", "3"}).bytes(),
       "there are 3 tokens"},
      {"Dims0", with_tensor({}, 0, ""), "has 0 dimensions"},
      {"Dims5", with_tensor({1, 1, 1, 1, 1}, 0, "1234"), "has 5 dimensions"},
      {"DimNegative", with_tensor({kMax - 15}, 0, ""), "dimension 0"},
      {"DimsWrap", with_tensor({std::uint64_t{1} << 62}, 0, ""), "2^63"},
      {"TypeUnknown", with_tensor({1}, 43, "1234"), "type 43"},
      {"TypeRemoved", with_tensor({32}, 4, std::string(20, 'x')), "type 4 "},
      {"RowIsNotBlocks", with_tensor({16}, 8, std::string(17, 'x')),
       "cannot be divided into blocks"},
      {"TypeLies", changed(kFfnUp + type(0), kFfnUp + type(1)), "begins at data byte"},
      {"TensorTwice", tiny_gguf().floats("output_norm.weight", {8}).bytes(), "occurs twice"},
      {"TensorNul", tiny_gguf().floats(std::string("a\0b", 3), {8}).bytes(), "not UTF-8"},
      {"Surplus", tiny_gguf().floats("a.weight", {1}).bytes(), "not a tensor"},
  };
}

std::vector<Lie> model_lies() {
  const std::string heads = "llama.attention.head_count";
  return {
      {"NoArchitecture", changed("general.architecture", "general.architectury"), "is missing"},
      {"Layers", changed(key("llama.block_count", 1), key("llama.block_count", 2)), "layer 1"},
      {"LayersHuge", changed(key("llama.block_count", 1), key("llama.block_count", UINT32_MAX)),
       "block_count"},
      {"Layers0", changed(key("llama.block_count", 1), key("llama.block_count", 0)), "is 0"},
      {"Heads3", changed(key(heads, 2), key(heads, 3)), "3 heads"},
      {"Heads0", changed(key(heads, 2), key(heads, 0)), "is 0"},
      {"HeadsMore", changed(key(heads, 2), key(heads, 4)), "attn_k"},
      {"Width", changed(key("llama.embedding_length", 8), key("llama.embedding_length", 16)),
       "token_embd"},
      {"NoContext", changed("llama.context_length", "llama.context_lengtx"), "is missing"},
      {"EpsilonNan", changed(number(1e-5F), number(std::numeric_limits<float>::quiet_NaN())),
       "epsilon"},
      {"NoEpsilon", changed("layer_norm_rms_epsilon", "layer_norm_rms_epsilom"), "epsilon"},
      {"OddRope", tiny_gguf().uint("llama.rope.dimension_count", 3).bytes(), "dimension_count"},
      {"Experts", tiny_gguf().uint("llama.expert_count", 8).bytes(), "ffn_gate"},
      {"ExpertsHuge", tiny_gguf().uint("llama.expert_count", 1U << 30).bytes(), "experts"},
      {"KeyLength", tiny_gguf().uint("llama.attention.key_length", UINT32_MAX).bytes(),
       "key_length"},
      {"LayerHuge", changed("blk.0.ffn_up.weight", "blk.9.ffn_up.weight"), "in layer 9"},
      {"Integers", changed(kFfnUp + type(0), kFfnUp + type(26)), "I32"},
      {"Honest", tiny_gguf().bytes(), ""},
      {"SplitAlone", tiny_gguf().uint("split.count", 3).bytes(), "is one of 3 files"},
  };
}

class GgufLie : public testing::TestWithParam<Lie> {};

TEST_P(GgufLie, IsRefused) {
  const TempDir dir;
  ASSERT_FALSE(GetParam().bytes.empty());
  const auto opened = open_gguf(dir, GetParam().bytes);
  if (GetParam().words.empty()) {
    EXPECT_THAT(opened, IsOk());  // the honest one
    return;
  }
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("m.gguf"));
  EXPECT_THAT(opened.error().message, HasSubstr(GetParam().words));
}

std::string name_of(const testing::TestParamInfo<Lie>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(OfAContainer, GgufLie, testing::ValuesIn(container_lies()), name_of);
INSTANTIATE_TEST_SUITE_P(OfAModel, GgufLie, testing::ValuesIn(model_lies()), name_of);

TEST(Gguf, EveryCutIsRefused) {
  const TempDir dir;
  const std::string whole = tiny_gguf().bytes();
  for (std::size_t size = 0; size < whole.size(); size += size < 1200 ? 1 : 97) {
    const auto opened = open_gguf(dir, whole.substr(0, size));
    ASSERT_FALSE(opened.has_value()) << size;
  }
  EXPECT_THAT(open_gguf(dir, whole), IsOk());
}

TEST(Gguf, ManyKeysOrTensorsTakeMemoryForTheirBytesOnly) {
  const TempDir dir;
  GgufBuilder model = tiny_gguf();
  for (std::uint32_t i = 0; i < 70'000; ++i) {
    model.uint("x" + std::to_string(i), i);
  }
  const auto opened = open_gguf(dir, model.bytes());
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("at most 65536 are read"));
}

}  // namespace
}  // namespace onnx_external
