#include "checkpoint/pickle/pickle.h"

#include "support/pickle_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using namespace std::string_literals;

Result<Pickle> parse(const PickleBuilder& builder) {
  return Pickle::parse(builder.bytes());
}

TEST(Pickle, KeepsGlobalsAndCallsAsInertNodes) {
  PickleBuilder builder;
  builder.proto().global("posix", "system").mark().string("touch /tmp/x").tuple().reduce().stop();
  const auto pickle = parse(builder);
  ASSERT_THAT(pickle, IsOk());
  ASSERT_EQ(pickle->kind(pickle->root()), NodeKind::kObject);
  EXPECT_EQ(pickle->module(pickle->callable(pickle->root())), "posix");
  EXPECT_EQ(pickle->name(pickle->callable(pickle->root())), "system");
  const auto arguments = pickle->tuple(pickle->arguments(pickle->root()));
  ASSERT_EQ(arguments.size(), 1U);
  EXPECT_EQ(pickle->string(arguments[0]), "touch /tmp/x");
}

TEST(Pickle, ReadsInstAndObjAsInertCalls) {
  for (const std::string& text : {"(S'a'\nios\nsystem\n."s, "(cos\nsystem\nS'a'\no."s}) {
    const auto pickle = Pickle::parse(text);
    ASSERT_THAT(pickle, IsOk());
    ASSERT_EQ(pickle->kind(pickle->root()), NodeKind::kObject);
    EXPECT_EQ(pickle->name(pickle->callable(pickle->root())), "system");
    EXPECT_EQ(pickle->tuple(pickle->arguments(pickle->root())).size(), 1U);
  }
}

TEST(Pickle, ReadsIntegersOfEveryOpcode) {
  const std::vector<std::pair<std::string, std::int64_t>> cases = {
      {"K\xff."s, 255},
      {"M\xff\xff."s, 65535},
      {"J\xfe\xff\xff\xff."s, -2},
      {"\x8a\x00."s, 0},
      {"\x8a\x01\xff."s, -1},
      {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s, INT64_MAX},
      {"\x8b\x02\x00\x00\x00\x00\x01."s, 256},
      {"I-12\n."s, -12},
      {"L34L\n."s, 34},
  };
  for (const auto& [bytes, value] : cases) {
    const auto pickle = Pickle::parse(bytes);
    ASSERT_THAT(pickle, IsOk());
    EXPECT_EQ(pickle->integer(pickle->root()), value) << bytes;
  }
}

TEST(Pickle, KeepsIntegersPast64BitsWithoutAValue) {
  for (const std::string& bytes :
       {"\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01."s, "L99999999999999999999L\n."s}) {
    const auto pickle = Pickle::parse(bytes);
    ASSERT_THAT(pickle, IsOk());
    EXPECT_EQ(pickle->kind(pickle->root()), NodeKind::kBigInteger);
  }
}

TEST(Pickle, ReadsStringsOfEveryOpcode) {
  for (const std::string& bytes :
       {"X\x02\x00\x00\x00hi."s, "\x8c\x02hi."s, "\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s,
        "U\x02hi."s, "T\x02\x00\x00\x00hi."s, "S'hi'\n."s, "S'\\x68i'\n."s, "Vhi\n."s,
        "V\\u0068i\n."s}) {
    const auto pickle = Pickle::parse(bytes);
    ASSERT_THAT(pickle, IsOk());
    EXPECT_EQ(pickle->string(pickle->root()), "hi") << bytes;
  }
}

TEST(Pickle, ReadsProtocol4FramesMemoAndStackGlobal) {
  const auto pickle = Pickle::parse(
      "\x80\x04\x95\x13\x00\x00\x00\x00\x00\x00\x00\x8c\x05torch\x94\x8c\x04Size\x94\x93\x94h\x00."s);
  ASSERT_THAT(pickle, IsOk());
  EXPECT_EQ(pickle->string(pickle->root()), "torch");
}

TEST(Pickle, CollectsDictItemsAndListElementsInOrder) {
  PickleBuilder builder;
  builder.proto().empty_dict().mark().string("a").integer(1).string("b").empty_list();
  builder.mark().integer(2).integer(3).append_items().integer(4).op('a').set_items();
  builder.string("c").none().op('s').stop();
  const auto pickle = parse(builder);
  ASSERT_THAT(pickle, IsOk());
  const auto items = pickle->items(pickle->root());
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(pickle->string(items[2].first), "c");
  const auto elements = pickle->elements(items[1].second);
  ASSERT_EQ(elements.size(), 3U);
  EXPECT_EQ(pickle->integer(elements[2]), 4);
}

TEST(Pickle, SurvivesCyclesAndAMillionNestedTuples) {
  const auto cycle = Pickle::parse(
      "]q\x00h\x00"
      "a."s);
  ASSERT_THAT(cycle, IsOk());
  EXPECT_EQ(cycle->elements(cycle->root()).front(), cycle->root());
  EXPECT_THAT(Pickle::parse("N" + std::string(1'000'000, '\x85') + "."), IsOk());
  EXPECT_THAT(Pickle::parse(std::string(1'000'000, '(') + "N."), IsOk());
}

TEST(Pickle, TakesAHugeMemoIndexWithoutHugeMemory) {
  EXPECT_THAT(Pickle::parse("Nr\xff\xff\xff\xff"
                            "0j\xff\xff\xff\xff."s),
              IsOk());
}

TEST(Pickle, MemoizesUnderTheNumberOfEntriesAsPythonDoes) {
  // Index 0 is put twice: the memo has one entry, and MEMOIZE takes index 1.
  const auto twice = Pickle::parse(
      "Nq\x00q\x00"
      "0K\x02\x94"
      "0h\x01."s);
  ASSERT_THAT(twice, IsOk());
  EXPECT_EQ(twice->integer(twice->root()), 2);
  // A far index counts too: MEMOIZE takes 1, then 2.
  const auto far = Pickle::parse(
      "Nq\x09"
      "0K\x01\x94"
      "0K\x02\x94"
      "0h\x02."s);
  ASSERT_THAT(far, IsOk());
  EXPECT_EQ(far->integer(far->root()), 2);
  // An index that was far stays what it was, and is counted once, when the entries reach it.
  const auto reached = Pickle::parse(
      "K\x07q\x01"
      "0K\x05q\x00"
      "0K\x06q\x01"
      "0K\x08\x94"
      "0h\x02."s);
  ASSERT_THAT(reached, IsOk());
  EXPECT_EQ(reached->integer(reached->root()), 8);
}

TEST(Pickle, LimitsMarksStackAndMemoTogether) {
  EXPECT_THAT(Pickle::parse(std::string(kMaxReferencesPerNode * kMaxPickleNodes + 1, '(')),
              FailsWith(ErrorCode::kUnsupported, "references to objects"));
  EXPECT_THAT(Pickle::parse(std::string(kMaxReferencesPerNode * kMaxPickleNodes + 1, 'N')),
              FailsWith(ErrorCode::kUnsupported, "references to objects"));
}

TEST(Pickle, IgnoresBytesAfterStop) {
  EXPECT_THAT(Pickle::parse("N.cos\nsystem\n"), IsOk());
}

struct Lie {
  const char* name;
  std::string bytes;
  ErrorCode code;
  const char* message;
};

class PickleLie : public ::testing::TestWithParam<Lie> {};

TEST_P(PickleLie, IsRefused) {
  EXPECT_THAT(Pickle::parse(GetParam().bytes), FailsWith(GetParam().code, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Pickle, PickleLie,
    ::testing::Values(
        Lie{"Empty", "", ErrorCode::kCorrupt, "ends without STOP"},
        Lie{"NoStop", "N", ErrorCode::kCorrupt, "ends without STOP"},
        Lie{"EmptyStack", ".", ErrorCode::kCorrupt, "too few values"},
        Lie{"UnknownOpcode", "\xff", ErrorCode::kCorrupt, "no such pickle opcode"},
        Lie{"Protocol6", "\x80\x06N.", ErrorCode::kUnsupported, "protocol 6"},
        Lie{"StringPastEnd", "X\xff\xff\xff\xffhi.", ErrorCode::kCorrupt,
            "4294967295 bytes are needed"},
        Lie{"HugeString", "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", ErrorCode::kCorrupt, "needed"},
        Lie{"HugeBytes", "\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", ErrorCode::kCorrupt, "needed"},
        Lie{"NegativeBinString", "T\xff\xff\xff\xff.", ErrorCode::kCorrupt, "negative length"},
        Lie{"NegativeLong4", "\x8b\xff\xff\xff\xff.", ErrorCode::kCorrupt, "negative length"},
        Lie{"HugeLong4", "\x8b\xff\xff\xff\x7f.", ErrorCode::kCorrupt, "needed"},
        Lie{"FramePastEnd", "\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", ErrorCode::kCorrupt, "frame"},
        Lie{"NoMark", "t.", ErrorCode::kCorrupt, "no mark"},
        Lie{"TupleAcrossMark", "N(\x85.", ErrorCode::kCorrupt, "too few values"},
        Lie{"UnsetMemo", "h\x07.", ErrorCode::kCorrupt, "memo 7 was never set"},
        Lie{"OddItems", "}(Nu.", ErrorCode::kCorrupt, "a key without a value"},
        Lie{"GlobalWithoutEnd", "ctorch\nSize", ErrorCode::kCorrupt, "line without an end"},
        Lie{"StackGlobalOfInts", "K\x01K\x02\x93.", ErrorCode::kCorrupt, "must be strings"},
        Lie{"Ext1", "\x82\x01.", ErrorCode::kUnsupported, "extension registry"},
        Lie{"PersId", "P1\n.", ErrorCode::kUnsupported, "persistent ids in text form"},
        Lie{"NextBuffer", "\x97.", ErrorCode::kUnsupported, "out-of-band"},
        Lie{"CallOfAString",
            "U\x01"
            "a)R.",
            ErrorCode::kCorrupt, "cannot call a string"},
        Lie{"ArgumentsNotATuple", "cos\nsystem\n]R.", ErrorCode::kCorrupt, "not a tuple"},
        Lie{"AppendToATuple", ")Na.", ErrorCode::kCorrupt, "cannot add to a tuple"},
        Lie{"SetItemOnAList", "]NNs.", ErrorCode::kCorrupt, "cannot add to a list"},
        Lie{"AppendToADict", "}Na.", ErrorCode::kCorrupt, "cannot add to a dict"},
        Lie{"BuildOnADict", "}}b.", ErrorCode::kCorrupt, "cannot add to a dict"},
        Lie{"BuildOnAGlobal", "cos\nx\n}b.", ErrorCode::kCorrupt, "cannot add to a global"},
        Lie{"SetItemOnAStorage", "NQNNs.", ErrorCode::kCorrupt, "cannot add to a storage"},
        Lie{"TextNotANumber", "Ix\n.", ErrorCode::kCorrupt, "not an int"},
        Lie{"TextWithoutQuotes", "Sx\n.", ErrorCode::kCorrupt, "without quotes"}),
    [](const auto& lie) { return std::string(lie.param.name); });

TEST(Pickle, EveryCutOfAStateDictIsRefusedOrReadWithoutACrash) {
  const std::string whole = state_dict_pickle({{.name = "w", .shape = {2}, .bytes = f32({1, 2})}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Pickle::parse(whole.substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace onnx_external
