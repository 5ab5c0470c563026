// Models that attack: rows O1, O2, E1 and E4 of docs/security.md.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <thread>

#include "base/safe_path.h"
#include "mutants/meter.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "threats/threats.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) {
    text.push_back(static_cast<char>(value | 0x80));
  }
  text.push_back(static_cast<char>(value));
  return text;
}

// `inner` in `depth` messages, each the field `numbers[i]` of the next; linear in what it gives.
std::string nested(std::size_t depth, const std::vector<int>& numbers, const std::string& inner) {
  std::vector<std::string> heads;
  std::uint64_t size = inner.size();
  for (std::size_t i = 0; i < depth; ++i) {
    const auto tag = static_cast<std::uint64_t>(numbers[i % numbers.size()]) << 3 | 2;
    heads.push_back(varint(tag) + varint(size));
    size += heads.back().size();
  }
  std::string all;
  for (std::size_t i = heads.size(); i-- > 0;) {
    all += heads[i];
  }
  return all + inner;
}

TEST(OnnxThreat, NestingDepthUsesNoStack) {
  // An If in an If in an If ...: graph.node.attribute.g, or attribute.graphs.
  const std::vector<std::vector<int>> ways{{6, 5, 1}, {11, 5, 1}};
  for (const std::vector<int>& way : ways) {
    for (const std::size_t depth : {std::size_t{3} * 101, std::size_t{3} * 33'333}) {
      const std::string bytes = nested(1, {7}, nested(depth, way, ""));
      const MemoryFile file(bytes);
      reset_peak();
      EXPECT_THAT(Model::load(file.path()), FailsWith(ErrorCode::kUnsupported, "nested"));
      EXPECT_FALSE(verify_model(file.path()).has_value());
      EXPECT_LT(peak_bytes(), kModestMemory) << depth;
    }
  }
}

TEST(OnnxThreat, AFileOf2GiBIsRefusedUnread) {
  const TempDir dir;
  const fs::path file = dir.write("model.onnx", "\x08\x08");
  fs::resize_file(file, std::uint64_t{1} << 31);
  reset_peak();
  EXPECT_THAT(Model::load(file), FailsWith(ErrorCode::kUnsupported, "2.15 GB"));
  EXPECT_LT(peak_bytes(), kModestMemory);
}

// --- tensors (O2) ------------------------------------------------------------------------------

TEST(OnnxThreat, ATensorThatContradictsItselfIsRefusedOrFound) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> shapes{
      {2},
      {-2},
      {std::numeric_limits<std::int64_t>::min()},
      {kHuge},
      {kHuge, 4},
      {std::int64_t{1} << 32, std::int64_t{1} << 32},
      {(std::int64_t{1} << 62) + 1, 4},
      {3}};
  using Fill = std::function<void(onnx::TensorProto&)>;
  const auto external = [](onnx::TensorProto& t) {
    t.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = t.add_external_data();
    entry->set_key("location");
    entry->set_value("w.bin");
  };
  const std::vector<std::pair<const char*, Fill>> data{
      {"external", external},
      {"external and raw",
       [&](auto& t) {
         external(t);
         t.set_raw_data("12345678");
       }},
      {"external and typed",
       [&](auto& t) {
         external(t);
         t.add_float_data(1);
       }},
      {"external without entries",
       [](auto& t) { t.set_data_location(onnx::TensorProto::EXTERNAL); }},
      {"external of a type that is none",
       [&](auto& t) {
         external(t);
         t.set_data_type(0);
       }},
      {"external strings",
       [&](auto& t) {
         external(t);
         t.set_data_type(onnx::TensorProto::STRING);
       }},
      {"external, in segments",
       [&](auto& t) {
         external(t);
         t.mutable_segment()->set_begin(0);
         t.set_raw_data("x");
       }},
      {"an external twin",
       [&](auto& t) {
         external(t);
         t.set_name("twin");
       }},
  };
  const TempDir dir;
  dir.write("w.bin", "12345678");
  std::size_t cases = 0;
  for (const auto& dims : shapes) {
    for (const auto& [what, fill] : data) {
      GraphBuilder b;
      b.initializer("twin", kFloat, {2}, "12345678").initializer("w", kFloat, dims, "");
      fill(*b.model().mutable_graph()->mutable_initializer(1));
      const fs::path path = dir.write("model.onnx", b.bytes());
      reset_peak();
      const auto report = verify_model(path);
      EXPECT_LT(peak_bytes(), kModestMemory) << what;
      const bool honest = dims == shapes[0] && what == data[0].first;
      EXPECT_EQ(report && report->ok(), honest) << what << " " << shape_text(dims);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 64U);
}

TEST(OnnxThreat, InlineDataOfAnotherSizeIsNeverSaved) {
  const TempDir dir;
  for (const std::vector<std::int64_t>& dims :
       {std::vector<std::int64_t>{3}, {-1}, {1LL << 62, 8}, {1LL << 32, 1LL << 32}, {0}}) {
    GraphBuilder b;
    b.initializer("w", kFloat, dims, "12345678").node("Neg", {"w"}, {"y"}).output("y", kFloat, {2});
    SaveOptions options;
    options.write.sync = Sync::kNone;
    const auto saved =
        relayout_model({.folder = dir.path() / "out"}, dir.write("g.onnx", b.bytes()), options);
    EXPECT_FALSE(saved.has_value()) << shape_text(dims);
    EXPECT_FALSE(fs::exists(dir.path() / "out")) << shape_text(dims);
  }
}

// --- entries (E1) ------------------------------------------------------------------------------

TEST(OnnxThreat, OnlyPlainDecimalNumbersInsideTheFileAreOffsetsAndLengths) {
  std::vector<std::string> texts{"",
                                 " ",
                                 "+8",
                                 "-8",
                                 " 8",
                                 "8 ",
                                 "\t8",
                                 "8\n",
                                 "0x8",
                                 "0X8",
                                 "8.0",
                                 "8.",
                                 ".8",
                                 "8e0",
                                 "8E0",
                                 "1e1",
                                 "8L",
                                 "8u",
                                 "8ull",
                                 "0b1000",
                                 "0o10",
                                 "8,0",
                                 "8_0",
                                 "8'0",
                                 "eight",
                                 "NaN",
                                 "inf",
                                 "-0",
                                 "+0",
                                 "--8",
                                 "8-",
                                 "(8)",
                                 "[8]",
                                 "\"8\"",
                                 "%38",
                                 "&#56;",
                                 "8\x7f",
                                 "\xef\xbc\x98",
                                 "\xd9\xa8",
                                 "18446744073709551616",
                                 "18446744073709551624",
                                 "18446744073709551615",
                                 "9223372036854775808",
                                 "9223372036854775807",
                                 "9223372036854775800",
                                 "4294967296",
                                 "4294967304",
                                 "2.15 GB",
                                 "16",
                                 "17",
                                 "9",
                                 "7",
                                 "0",
                                 "1",
                                 "8",
                                 "08",
                                 "0000000000000000008",
                                 "99999999999999999999999999",
                                 "340282366920938463463374607431768211464",
                                 "8;"};
  texts.emplace_back("8\0", 2);
  texts.emplace_back(
      "8\0"
      "9",
      3);
  texts.emplace_back(100'000, '8');
  texts.emplace_back(std::string(100'000, '0') + "8");
  ASSERT_GE(texts.size(), 60U);
  const auto plain = [](const std::string& text) -> std::optional<std::uint64_t> {
    const auto digits = text.find_first_not_of("0123456789");
    const auto first = text.find_first_not_of('0');
    const std::string value = first == std::string::npos ? "" : text.substr(first);
    return text.empty() || digits != std::string::npos || value.size() > 3
               ? std::nullopt
               : std::optional(value.empty() ? 0 : std::stoull(value));
  };
  const TempDir dir;
  dir.write("w.bin", std::string(16, 'x'));
  for (const char* const key : {"offset", "length"}) {
    for (const std::string& text : texts) {
      GraphBuilder b;
      b.external("w", kFloat, {2}, {{"location", "w.bin"}, {key, text}});
      const auto report = verify_model(dir.write("model.onnx", b.bytes()));
      const auto value = plain(text);
      const bool good =
          value && (key == std::string("offset") ? *value <= 8 : *value == 8 || *value == 0);
      EXPECT_EQ(report && report->ok(), good) << key << " '" << text.substr(0, 30) << "'";
    }
  }
}

// --- races (E4) --------------------------------------------------------------------------------

// Another process's hand: the folder and the file in it change places with links to secrets.
class Swapper {
 public:
  explicit Swapper(const fs::path& folder) : folder_(folder) {
    thread_ = std::thread([this] {
      while (!done_) {
        swap("sub", "sub_link");
        swap("sub_real/w.bin", "sub_real/w_link");
        swap("sub_real/w.bin", "sub_real/w_fifo");
      }
    });
  }
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;
  ~Swapper() {
    done_ = true;
    thread_.join();
  }

 private:
  void swap(const char* one, const char* other) const {
    const std::string a = (folder_ / one).string();
    const std::string b = (folder_ / other).string();
    (void)::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  }

  fs::path folder_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST(OnnxThreat, NoRaceLeadsOutOfTheFolder) {
  constexpr int kOpens = 100'000;
  const TempDir outside;
  outside.write("w.bin", "SECRET");
  outside.write("secret", "SECRET");
  const TempDir dir;
  dir.write("in/sub/w.bin", "honest");
  const fs::path in = dir.path() / "in";
  fs::create_directory_symlink(outside.path(), in / "sub_link");
  fs::create_symlink(outside.path() / "secret", in / "sub/w_link");
  ASSERT_EQ(::mkfifo((in / "sub/w_fifo").c_str(), 0600), 0);
  // What stands for "sub" is one of these two; the names of its files are swapped through this one.
  fs::create_directory_symlink(in / "sub", in / "sub_real");
  const auto folder = Directory::open(in);
  ASSERT_THAT(folder, IsOk());
  std::size_t opened = 0;
  const Swapper swapper(in);
  for (int i = 0; i < kOpens; ++i) {
    const auto file = open_beneath(*folder, "sub/w.bin");
    if (file) {
      std::string text(6, '\0');
      ASSERT_THAT((*file)->read(0, std::as_writable_bytes(std::span(text))), IsOk());
      ASSERT_EQ(text, "honest") << i;
      ++opened;
    }
  }
  EXPECT_GT(opened, 0U);
  EXPECT_LT(opened, static_cast<std::size_t>(kOpens));
}

}  // namespace
}  // namespace onnx_external
