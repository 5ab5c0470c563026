#include "tensor/strided_gather.h"

#include <algorithm>
#include <random>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

// The view's elements one by one, by the definition of strides.
std::vector<std::byte> by_definition(const StridedView& view, std::span<const std::byte> source) {
  std::vector<std::byte> out;
  std::uint64_t count = 1;
  for (const std::uint64_t size : view.sizes) {
    count *= size;
  }
  for (std::uint64_t element = 0; element < count; ++element) {
    std::uint64_t rest = element;
    std::uint64_t offset = 0;
    for (std::size_t d = view.sizes.size(); d-- > 0;) {
      offset += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    const auto piece = source.subspan(offset, view.element_bytes);
    out.insert(out.end(), piece.begin(), piece.end());
  }
  return out;
}

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

ReadSource source_of(const std::vector<std::byte>& bytes) {
  return [&bytes](std::uint64_t offset, std::span<std::byte> out) -> Status {
    EXPECT_LE(offset + out.size(), bytes.size());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  };
}

StridedView random_view(std::mt19937& random) {
  StridedView view;
  view.element_bytes = 1U << (random() % 5);
  const std::size_t rank = random() % 5;
  for (std::size_t d = 0; d < rank; ++d) {
    view.sizes.push_back(1 + random() % 7);
    view.strides.push_back(random() % 4 == 0 ? 0 : random() % 900 * view.element_bytes);
  }
  return view;
}

TEST(StridedGather, GivesWhatTheStridesDefineForAnyViewAndAnyPart) {
  std::mt19937 random(7);  // a fixed seed: the same cases in every run
  const std::vector<std::byte> source = random_bytes(400'000, random);
  for (int i = 0; i < 2000; ++i) {
    const StridedView view = random_view(random);
    const std::vector<std::byte> expected = by_definition(view, source);
    const std::uint64_t count = expected.size() / view.element_bytes;
    const std::uint64_t first = random() % count;
    const std::uint64_t part = 1 + random() % (count - first);
    std::vector<std::byte> out(part * view.element_bytes);
    ASSERT_THAT(gather_strided(view, first, out, source_of(source)), IsOk());
    ASSERT_TRUE(
        std::equal(out.begin(), out.end(),
                   expected.begin() + static_cast<std::ptrdiff_t>(first * view.element_bytes)))
        << "case " << i;
  }
}

TEST(StridedGather, TransposesWholeTilesAndTheirEdges) {
  std::mt19937 random(9);
  const std::vector<std::byte> source = random_bytes(150 * 131 * 16, random);
  for (const std::uint32_t unit : {1U, 2U, 4U, 8U, 16U}) {
    const StridedView view{
        .element_bytes = unit, .sizes = {131, 150}, .strides = {unit, 131 * unit}};
    std::vector<std::byte> out(std::size_t{131} * 150 * unit);
    ASSERT_THAT(gather_strided(view, 0, out, source_of(source)), IsOk());
    EXPECT_EQ(out, by_definition(view, source)) << unit;
  }
}

TEST(StridedGather, NeverReadsMoreAtOnceThanItsScratch) {
  // 3,000 columns of a matrix whose rows lie 1,000 bytes apart: 12 MB of source in all.
  const StridedView view{.element_bytes = 4, .sizes = {200, 12'000}, .strides = {4, 1000}};
  std::mt19937 random(8);
  const std::vector<std::byte> source = random_bytes(12'000 * 1000, random);
  std::vector<std::byte> out(200 * 12'000 * 4);
  std::size_t largest = 0;
  ASSERT_THAT(gather_strided(view, 0, out,
                             [&](std::uint64_t offset, std::span<std::byte> piece) {
                               largest = std::max(largest, piece.size());
                               return source_of(source)(offset, piece);
                             }),
              IsOk());
  EXPECT_LE(largest, kGatherScratchBytes);
  EXPECT_EQ(out, by_definition(view, source));
}

TEST(StridedGather, ReadsNothingAgainWhereItReadsOverGaps) {
  // A quarter of rows that are short enough to be read whole, and too many for the scratch.
  for (const std::uint32_t unit : {1U, 2U, 4U, 8U}) {
    const std::uint64_t pitch = 11'584;
    const StridedView view{
        .element_bytes = unit, .sizes = {pitch / 4 / unit, 200}, .strides = {unit, pitch}};
    std::mt19937 random(10);
    const std::vector<std::byte> source = random_bytes(200 * pitch, random);
    std::vector<std::byte> out(200 * pitch / 4);
    std::size_t all = 0;
    ASSERT_THAT(gather_strided(view, 0, out,
                               [&](std::uint64_t offset, std::span<std::byte> piece) {
                                 all += piece.size();
                                 return source_of(source)(offset, piece);
                               }),
                IsOk());
    EXPECT_LE(all, source.size()) << unit;
    EXPECT_EQ(out, by_definition(view, source)) << unit;
  }
}

TEST(StridedGather, PassesOnTheErrorOfTheSource) {
  const StridedView view{.element_bytes = 4, .sizes = {3, 3}, .strides = {4, 12}};
  std::vector<std::byte> out(36);
  EXPECT_THAT(gather_strided(view, 0, out,
                             [](std::uint64_t, std::span<std::byte>) -> Status {
                               return fail(ErrorCode::kIo, "broken disk");
                             }),
              FailsWith(ErrorCode::kIo, "broken disk"));
}

}  // namespace
}  // namespace onnx_external
