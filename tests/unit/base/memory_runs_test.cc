#include "base/memory_runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/copy_range.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/read_back.h"
#include "support/pattern.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using Runs = std::shared_ptr<const MemoryRuns>;

const std::byte* at(const std::string& text, std::size_t offset = 0) {
  return reinterpret_cast<const std::byte*>(text.data()) + offset;
}

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

MadeBlock filled(char c, std::uint64_t size) {
  return {std::string("run ") + c, size, [c](std::span<std::byte> out) {
            std::fill(out.begin(), out.end(), static_cast<std::byte>(c));
            return Status();
          }};
}

TEST(MemoryRuns, GiveEqualAddressesEqualOffsets) {
  const std::string text = pattern(100);
  const auto runs = MemoryRuns::of(
      {{at(text, 20), 30, {}}, {at(text), 40, {}}, {at(text, 20), 5, {}}, {at(text, 90), 10, {}}},
      {}, 1);
  ASSERT_THAT(runs, IsOk());
  EXPECT_EQ((*runs)->size(), 60U);
  EXPECT_EQ((*runs)->offset_of(at(text, 20)), (*runs)->offset_of(at(text)) + 20);
  EXPECT_EQ(as_text(*(*runs)->bytes((*runs)->offset_of(at(text)), 50)), text.substr(0, 50));
  EXPECT_EQ((*runs)->bytes((*runs)->offset_of(at(text, 95)), 5)->data(), at(text, 95));
}

TEST(MemoryRuns, RejectBytesOutsideOfTheBlocks) {
  const std::string text = pattern(100);
  const auto runs = MemoryRuns::of({{at(text), 10, {}}, {at(text, 50), 10, {}}}, {}, 1).value();
  EXPECT_THAT(runs->bytes(5, 10), FailsWith(ErrorCode::kCorrupt, "10 bytes are requested"));
  EXPECT_THAT(runs->bytes(20, 1), FailsWith(ErrorCode::kCorrupt, "outside all blocks"));
  EXPECT_THAT(runs->bytes(0, std::numeric_limits<std::uint64_t>::max()),
              FailsWith(ErrorCode::kCorrupt, "outside all blocks"));
  EXPECT_THAT(runs->bytes(20, 0), IsOk());
}

TEST(MemoryRuns, KeepTheOwnersOfTheirBlocks) {
  auto owner = std::make_shared<const std::string>(pattern(10));
  const std::weak_ptr<const std::string> watch = owner;
  const std::byte* const data = at(*owner);
  auto runs = MemoryRuns::of({{data, 10, std::move(owner)}}, {}, 1).value();
  EXPECT_FALSE(watch.expired());
  runs.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(MemoryRuns, MakeBytesOnlyWhileTheyAreHeld) {
  const auto runs = MemoryRuns::of({}, {filled('a', 3), filled('b', 2)}, 1).value();
  const std::uint64_t b = runs->offset_of_made(1);
  EXPECT_THAT(runs->bytes(b, 2),
              FailsWith(ErrorCode::kUnsupported, "run b: its bytes are produced"));
  auto held = runs->hold(b).value();
  EXPECT_EQ(as_text(*runs->bytes(b, 2)), "bb");
  EXPECT_THAT(runs->bytes(runs->offset_of_made(0), 3), FailsWith(ErrorCode::kUnsupported, "run a"));
  held.reset();
  EXPECT_THAT(runs->bytes(b, 2), FailsWith(ErrorCode::kUnsupported, "run b"));
  EXPECT_NE(runs->hold(runs->offset_of_made(0)).value(), nullptr);
}

TEST(MemoryRuns, HoldAtMostTheLimitAtOnceForAnyNumberOfThreads) {
  std::atomic<int> held{0};
  std::atomic<int> most{0};
  std::vector<MadeBlock> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back({"run", 1000, [&](std::span<std::byte>) {
                        const int now = ++held;
                        for (int seen = most;
                             now > seen && !most.compare_exchange_weak(seen, now);) {
                        }
                        return Status();
                      }});
  }
  const auto runs = MemoryRuns::of({}, std::move(blocks), 2).value();
  EXPECT_THAT(parallel_for(64, 8,
                           [&](std::size_t i, int) -> Status {
                             auto hold = runs->hold(runs->offset_of_made(i));
                             EXPECT_THAT(hold, IsOk());
                             --held;
                             return {};
                           }),
              IsOk());
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
}

TEST(MemoryRuns, ShareWhatIsHeldByAnotherThread) {
  std::atomic<int> calls{0};
  std::vector<MadeBlock> blocks{{"run", 10, [&](std::span<std::byte>) {
                                   ++calls;
                                   return Status();
                                 }}};
  const auto runs = MemoryRuns::of({}, std::move(blocks), 1).value();
  const auto one = runs->hold(0).value();
  const auto two = runs->hold(5).value();
  EXPECT_EQ(one, two);
  EXPECT_EQ(calls, 1);
}

TEST(MemoryRuns, NameTheRunWhoseFunctionFailsAndFreeItsPlace) {
  std::vector<MadeBlock> blocks{
      {"one", 4, [](std::span<std::byte>) { return fail(ErrorCode::kNotFound, "no device"); }},
      {"two", 4, [](std::span<std::byte>) -> Status { throw std::runtime_error("boom"); }},
      {"three", 4, [](std::span<std::byte>) -> Status { throw 3; }},
      {"vast", std::uint64_t{1} << 62, [](std::span<std::byte>) { return Status(); }},
      filled('d', 4)};
  const auto runs = MemoryRuns::of({}, std::move(blocks), 1).value();
  EXPECT_THAT(runs->hold(0), FailsWith(ErrorCode::kNotFound, "one: no device"));
  EXPECT_THAT(runs->hold(4), FailsWith(ErrorCode::kIo, "two: unexpected: boom"));
  EXPECT_THAT(runs->hold(8), FailsWith(ErrorCode::kIo, "three: unexpected"));
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the address sanitizer ends the process when an allocation fails";
#endif
#endif
  EXPECT_THAT(runs->hold(12), FailsWith(ErrorCode::kIo, "vast: out of memory"));
  EXPECT_THAT(runs->hold(runs->offset_of_made(4)), IsOk());
}

TEST(MemoryRuns, RefuseSizesThatCannotBe) {
  const std::string text = "x";
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(MemoryRuns::of({{at(text), kMost, {}}}, {}, 1),
              FailsWith(ErrorCode::kInvalidArgument, "reach beyond the end of the address space"));
  EXPECT_THAT(MemoryRuns::of({}, {filled('a', kMost / 2), filled('b', 1)}, 1),
              FailsWith(ErrorCode::kInvalidArgument, "exceed 2^63-1 bytes"));
  EXPECT_THAT(MemoryRuns::of({}, {}, 0), FailsWith(ErrorCode::kInvalidArgument, "at least one"));
}

TEST(MemoryRuns, AreReadLikeAFile) {
  const std::string text = pattern(5000);
  const auto file = SourceFile::of_runs(MemoryRuns::of({{at(text), 5000, {}}}, {}, 1).value());
  const auto other = SourceFile::of_runs(MemoryRuns::of({{at(text), 5000, {}}}, {}, 1).value());
  EXPECT_EQ(file->fd(), -1);
  EXPECT_EQ(file->size(), 5000U);
  std::string out(100, '\0');
  EXPECT_THAT(file->read(70, std::as_writable_bytes(std::span(out))), IsOk());
  EXPECT_EQ(out, text.substr(70, 100));
  EXPECT_EQ(file->give(70, std::as_writable_bytes(std::span(out)))->data(), at(text, 70));
  EXPECT_THAT(file->read(4950, std::as_writable_bytes(std::span(out))),
              FailsWith(ErrorCode::kCorrupt, "100 bytes were requested"));
  EXPECT_THAT(file->check_unchanged(), IsOk());
  EXPECT_FALSE(file->same_file(*file));
  EXPECT_NE(file->stamp().value(), file->stamp().value());
  EXPECT_EQ(stored_bytes(*file), 5000U);
  EXPECT_FALSE(may_have_holes(*file));
  EXPECT_FALSE(next_run(*file, 0, 5000).is_hole);
  EXPECT_EQ(range_crc32(*file, 10, 4000).value(), range_crc32(*other, 10, 4000).value());
}

// Copies a range of memory into a file in every way and looks at the file.
TEST(MemoryRuns, AreCopiedFromWhereTheyAre) {
  const std::string text = pattern(3'000'000);
  const auto source =
      SourceFile::of_runs(MemoryRuns::of({{at(text), text.size(), {}}}, {}, 1).value());
  const TempDir dir;
  const auto folder = Directory::open(dir.path()).value();
  const auto copied = [&](const std::string& name, std::uint64_t from, std::uint64_t to,
                          const auto& copy) {
    auto output = OutputFile::create(folder, name).value();
    const StepFn step;
    EXPECT_THAT(copy(CopyRange{*source, from, 2'500'000, output, to, step}), IsOk());
    EXPECT_THAT(output.close(), IsOk());
    return read_text(dir.path() / name).substr(to);
  };
  const std::string wanted = text.substr(12'345, 2'500'000);
  Crc32 whole;
  whole.update(std::as_bytes(std::span(wanted)));
  RangeCopier copier;
  EXPECT_TRUE(copied("plain", 12'345, 100, [&](CopyRange range) { return copier.copy(range); }) ==
              wanted);
  Crc32 crc;
  EXPECT_TRUE(copied("digests", 12'345, 4096,
                     [&](CopyRange range) { return copier.copy_with_crc(range, crc); }) == wanted);
  EXPECT_EQ(crc.value(), whole.value());
}

}  // namespace
}  // namespace onnx_external
