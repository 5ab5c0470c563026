#include "base/json.h"

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using namespace std::string_literals;

TEST(Json, KeepsTheOrderOfMembersAndTheKindsOfNumbers) {
  auto json = parse_json(R"({"b": [1, -2, 1.0], "a": "x"})");
  ASSERT_THAT(json, IsOk());
  EXPECT_EQ(json->object()->front().first, "b");
  const JsonArray& numbers = *json->find("b")->array();
  EXPECT_EQ(*numbers[0].uint(), 1U);
  EXPECT_EQ(numbers[1].uint(), nullptr);
  EXPECT_EQ(numbers[2].uint(), nullptr);
  EXPECT_EQ(*json->find("a")->string(), "x");
  EXPECT_EQ(json->find("c"), nullptr);
}

TEST(Json, RefusesTwinKeys) {
  EXPECT_THAT(parse_json(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
              FailsWith(ErrorCode::kCorrupt, "'a' occurs twice"));
}

TEST(Json, RefusesNestingPastItsLimit) {
  EXPECT_THAT(parse_json("[[1]]", 2), IsOk());
  EXPECT_THAT(parse_json("[[[1]]]", 2), FailsWith(ErrorCode::kCorrupt, "deeper than 2"));
  EXPECT_THAT(parse_json(std::string(1'000'000, '[')),
              FailsWith(ErrorCode::kCorrupt, "deeper than 8"));
}

TEST(Json, RefusesWhatIsNotOneDocument) {
  EXPECT_THAT(parse_json(""), FailsWith(ErrorCode::kCorrupt, "not JSON"));
  EXPECT_THAT(parse_json("{} {}"), FailsWith(ErrorCode::kCorrupt, "not JSON"));
  EXPECT_THAT(parse_json(R"({"a": 1)"), FailsWith(ErrorCode::kCorrupt, "not JSON"));
  EXPECT_THAT(parse_json("1e999"), FailsWith(ErrorCode::kCorrupt, "not JSON"));
}

TEST(Json, RefusesAByteOrderMark) {
  EXPECT_THAT(parse_json("\xEF\xBB\xBF{}"),
              FailsWith(ErrorCode::kCorrupt, "byte 1: a byte order mark"));
  EXPECT_THAT(parse_json("\xEF\xBB\xBF"), FailsWith(ErrorCode::kCorrupt, "byte order mark"));
  EXPECT_THAT(parse_json("{} \xEF\xBB\xBF"), FailsWith(ErrorCode::kCorrupt, "not JSON"));
  EXPECT_THAT(parse_json("[\"\xEF\xBB\xBF\"]"), IsOk());
}

TEST(Json, RefusesUtf16) {
  for (const std::string& text : {"\xFF\xFE{\0}\0"s, "\xFE\xFF\0{\0}"s}) {
    EXPECT_THAT(parse_json(text),
                FailsWith(ErrorCode::kCorrupt, "byte 1: text in UTF-16; save it as UTF-8"));
  }
}

TEST(Json, RejectsNulBytesAnywhere) {
  EXPECT_THAT(parse_json("{}\0"s), FailsWith(ErrorCode::kCorrupt, "byte 3: a NUL byte"));
  EXPECT_THAT(parse_json("{}\0 and more"s), FailsWith(ErrorCode::kCorrupt, "byte 3: a NUL byte"));
  EXPECT_THAT(parse_json("\0{}"s), FailsWith(ErrorCode::kCorrupt, "byte 1: a NUL byte"));
  EXPECT_THAT(parse_json("[1\0]"s), FailsWith(ErrorCode::kCorrupt, "byte 3: a NUL byte"));
  EXPECT_THAT(parse_json("[\"\0\"]"s), FailsWith(ErrorCode::kCorrupt, "byte 3: a NUL byte"));
  EXPECT_THAT(parse_json(R"(["\u0000"])"), IsOk());
}

TEST(Json, QuotesControlCharactersAndBytesThatAreNotUtf8) {
  EXPECT_EQ(json_quote("a\"\n"), R"("a\"\n")");
  EXPECT_EQ(json_quote("\xFF"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace onnx_external
