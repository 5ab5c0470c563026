#include "checkpoint/storage/joined_views.h"

#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <vector>

#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;

constexpr std::int64_t kColumns = 4;

constexpr std::uint64_t kRowBytes = kColumns * sizeof(float);

TensorView view_of_rows(std::uint32_t storage, Shape shape, std::uint64_t offset = 0) {
  TensorView view;
  view.dtype = DType::kFloat32;
  view.strides = contiguous_strides(shape);
  view.shape = std::move(shape);
  view.storage = storage;
  view.storage_offset = offset;
  return view;
}

// Storage, first row and number of rows of each view.
using RowRun = std::array<std::uint64_t, 3>;

std::optional<std::vector<RowRun>> runs_of(const FileContents& all, const TensorView& view) {
  const auto views = rows_behind(all, view, kColumns);
  if (!views) {
    return std::nullopt;
  }
  std::vector<RowRun> runs;
  for (const TensorView& one : *views) {
    EXPECT_THAT(one.strides, ElementsAre(kColumns, 1));
    runs.push_back({one.storage, one.storage_offset / kRowBytes,
                    static_cast<std::uint64_t>(one.shape.front())});
  }
  return runs;
}

void join(FileContents& all, std::uint32_t storage, JoinedParts parts) {
  all.joined.emplace(storage, std::make_shared<const JoinedParts>(std::move(parts)));
}

// Storages 0 to 3 have 3 rows each: two experts' gates, then their ups. 4 and 5 are stacks of
// these, and 6 has the experts with both.
FileContents experts() {
  FileContents all;
  const auto one = [](std::uint32_t storage) { return view_of_rows(storage, {1, 3, kColumns}); };
  join(all, 4, {{2, 3, kColumns}, {{{0, 0, 0}, one(0)}, {{1, 0, 0}, one(1)}}});
  join(all, 5, {{2, 3, kColumns}, {{{0, 0, 0}, one(2)}, {{1, 0, 0}, one(3)}}});
  join(all, 6,
       {{2, 6, kColumns},
        {{{0, 0, 0}, view_of_rows(4, {2, 3, kColumns})},
         {{0, 3, 0}, view_of_rows(5, {2, 3, kColumns})}}});
  return all;
}

TEST(JoinedViews, AreThoseOfTheStoragesThatAreJoined) {
  EXPECT_THAT(runs_of(experts(), view_of_rows(6, {2, 6, kColumns})),
              Eq(std::vector<RowRun>{{0, 0, 3}, {2, 0, 3}, {1, 0, 3}, {3, 0, 3}}));
}

TEST(JoinedViews, BeginAndEndWithinParts) {
  EXPECT_THAT(runs_of(experts(), view_of_rows(6, {3, kColumns}, 8 * kRowBytes)),
              Eq(std::vector<RowRun>{{1, 2, 1}, {3, 0, 2}}));
}

TEST(JoinedViews, StepOverRows) {
  TensorView view = view_of_rows(6, {2, kColumns}, kRowBytes);
  view.strides[0] = 6 * kColumns;
  EXPECT_THAT(runs_of(experts(), view), Eq(std::vector<RowRun>{{0, 1, 1}, {1, 1, 1}}));
}

TEST(JoinedViews, OfAnotherStorageAreItsRows) {
  EXPECT_THAT(runs_of(experts(), view_of_rows(2, {2, kColumns}, kRowBytes)),
              Eq(std::vector<RowRun>{{2, 1, 2}}));
}

TEST(JoinedViews, AreNoneIfRowsRunAcrossParts) {
  FileContents all = experts();
  const auto half = [](std::uint32_t storage) { return view_of_rows(storage, {3, kColumns / 2}); };
  join(all, 7, {{3, kColumns}, {{{0, 0}, half(0)}, {{0, kColumns / 2}, half(1)}}});
  EXPECT_EQ(runs_of(all, view_of_rows(7, {3, kColumns})), std::nullopt);
  EXPECT_EQ(runs_of(all, view_of_rows(6, {12, kColumns / 2})), std::nullopt);
  EXPECT_EQ(runs_of(all, view_of_rows(6, {2, kColumns}, sizeof(float))), std::nullopt);
  TensorView turned = view_of_rows(6, {kColumns, kColumns});
  turned.strides = {1, kColumns};
  EXPECT_EQ(runs_of(all, turned), std::nullopt);
}

}  // namespace
}  // namespace onnx_external
