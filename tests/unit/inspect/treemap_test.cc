#include "inspect/treemap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Rect kArea{10, 20, 300, 200};
constexpr double kRounding = 1e-6;

bool lies_in(const Rect& inner, const Rect& outer) {
  return inner.x >= outer.x - kRounding && inner.y >= outer.y - kRounding &&
         inner.x + inner.width <= outer.x + outer.width + kRounding &&
         inner.y + inner.height <= outer.y + outer.height + kRounding;
}

bool overlap(const Rect& a, const Rect& b) {
  return a.x + a.width > b.x + kRounding && b.x + b.width > a.x + kRounding &&
         a.y + a.height > b.y + kRounding && b.y + b.height > a.y + kRounding;
}

InspectedTensor tensor(std::string name, std::uint64_t nbytes) {
  InspectedTensor made;
  made.name = std::move(name);
  made.nbytes = nbytes;
  return made;
}

std::vector<std::string_view> labels(const std::vector<ModuleNode>& tree, std::size_t node) {
  std::vector<std::string_view> out;
  for (const std::size_t child : tree[node].children) {
    out.push_back(tree[child].label);
  }
  return out;
}

TEST(Squarify, GivesEachSizeItsPartOfTheArea) {
  const std::vector<double> sizes{500, 300, 100, 60, 25, 10, 4, 1};
  const auto places = squarify(sizes, kArea);
  ASSERT_EQ(places.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_NEAR(places[i].area(), kArea.area() * sizes[i] / 1000, 1e-3) << i;
  }
}

TEST(Squarify, FillsTheAreaWithoutOverlap) {
  std::vector<double> sizes(200);
  std::iota(sizes.rbegin(), sizes.rend(), 1.0);
  const auto places = squarify(sizes, kArea);
  double sum = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_TRUE(lies_in(places[i], kArea)) << i;
    sum += places[i].area();
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(overlap(places[i], places[j])) << i << " and " << j;
    }
  }
  EXPECT_NEAR(sum, kArea.area(), 1e-3);
}

TEST(Squarify, MakesBoxesThatAreNearlySquare) {
  const auto places = squarify(std::vector<double>(100, 1.0), {0, 0, 100, 100});
  for (const Rect& place : places) {
    EXPECT_LT(std::max(place.width, place.height), 2 * std::min(place.width, place.height));
  }
}

TEST(Squarify, BearsSizesThatRoundingLeavesNoRoomFor) {
  const auto places = squarify(std::vector<double>{1e19, 1e-300, 1e-300}, kArea);
  ASSERT_EQ(places.size(), 3U);
  for (const Rect& place : places) {
    EXPECT_TRUE(lies_in(place, kArea));
  }
}

TEST(ModuleTree, NestsTensorsByTheirNames) {
  const std::vector<InspectedTensor> tensors{tensor("a.w", 1), tensor("b.c.w", 2), tensor("a.b", 3),
                                             tensor("b.w", 4), tensor("top", 5)};
  const auto tree = make_module_tree(tensors);
  EXPECT_THAT(labels(tree, 0), ElementsAre("a", "b", "top"));
  const std::size_t b = tree[0].children[1];
  EXPECT_THAT(labels(tree, b), ElementsAre("c", "w"));
  EXPECT_EQ(tree[b].bytes, 6U);
  EXPECT_EQ(tree[b].tensor_count, 2U);
  EXPECT_EQ(tree[0].bytes, 15U);
}

TEST(ModuleTree, MergesModulesThatHoldNothingButOneOther) {
  const std::vector<InspectedTensor> tensors{tensor("x.y.z.a.w", 1), tensor("x.y.z.b.w", 2)};
  const auto tree = make_module_tree(tensors);
  EXPECT_THAT(labels(tree, 0), ElementsAre("x.y.z"));
  EXPECT_THAT(labels(tree, tree[0].children[0]), ElementsAre("a", "b"));
}

TEST(ModuleTree, KeepsSeparatorsThatSeparateNothing) {
  const std::vector<InspectedTensor> tensors{tensor("/model/w", 1), tensor("a..b", 1),
                                             tensor("end.", 1), tensor("..", 1), tensor("", 1)};
  const auto tree = make_module_tree(tensors);
  EXPECT_THAT(labels(tree, 0), ElementsAre("/model", "a", "end.", "..", ""));
  EXPECT_THAT(labels(tree, tree[0].children[1]), ElementsAre(".b"));
}

TEST(ModuleTree, StopsAtADepth) {
  std::string name;
  for (int i = 0; i < 50'000; ++i) {
    name += "a.";
  }
  const std::vector<InspectedTensor> tensors{tensor(name + "x", 1), tensor(name + "y", 1)};
  EXPECT_LE(make_module_tree(tensors).size(), 2 * kMaxModuleDepth + 3);
}

TEST(ModuleTree, AddsNoMoreThanANumberHolds) {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  const std::vector<InspectedTensor> tensors{tensor("a.v", most / 2), tensor("a.w", most / 2),
                                             tensor("a.x", most / 2)};
  EXPECT_EQ(make_module_tree(tensors)[0].bytes, most);
}

// Each box lies in the nearest module before it that contains it, apart from all boxes beside it.
void expect_nested(const std::vector<TreemapBox>& boxes, const Rect& area) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_TRUE(lies_in(boxes[i].place, area)) << i;
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(boxes[i].place, boxes[j].place)) {
        EXPECT_EQ(boxes[j].kind, BoxKind::kModule) << i << " lies on " << j;
        EXPECT_TRUE(lies_in(boxes[i].place, boxes[j].place)) << i << " leaves " << j;
      }
    }
  }
}

TEST(Treemap, NestsTheBoxesOfAModuleInIt) {
  std::vector<InspectedTensor> tensors;
  for (int i = 0; i < 12; ++i) {
    const std::string layer = "layer." + std::to_string(i);
    tensors.push_back(tensor(layer + ".attention.weight", 4000));
    tensors.push_back(tensor(layer + ".attention.bias", 40));
    tensors.push_back(tensor(layer + ".norm", 10));
  }
  const auto boxes = lay_out_treemap(make_module_tree(tensors), kArea);
  expect_nested(boxes, kArea);
  EXPECT_EQ(boxes.front().kind, BoxKind::kModule);
  EXPECT_EQ(boxes.front().count, tensors.size());
}

TEST(Treemap, PutsWhatIsTooSmallIntoOneBox) {
  std::vector<InspectedTensor> tensors{tensor("large", 1'000'000'000)};
  for (int i = 0; i < 1000; ++i) {
    tensors.push_back(tensor("small" + std::to_string(i), 10'000));
  }
  const auto boxes = lay_out_treemap(make_module_tree(tensors), kArea);
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_EQ(boxes[1].kind, BoxKind::kMore);
  EXPECT_EQ(boxes[1].count, 1000U);
  EXPECT_EQ(boxes[1].bytes, 10'000'000U);
  EXPECT_NEAR(boxes[1].place.area(), kArea.area() / 101, 1e-3);
}

TEST(Treemap, IsBoundedForAnyNumberOfTensors) {
  std::vector<InspectedTensor> flat;
  std::vector<InspectedTensor> nested;
  for (int i = 0; i < 100'000; ++i) {
    flat.push_back(tensor("t" + std::to_string(i), 100));
    nested.push_back(tensor("m" + std::to_string(i / 10) + ".t" + std::to_string(i), 100));
  }
  for (const auto& tensors : {flat, nested}) {
    const auto boxes = lay_out_treemap(make_module_tree(tensors), {0, 0, 3000, 2000});
    EXPECT_LE(boxes.size(), kMaxTreemapBoxes);
    EXPECT_GT(boxes.size(), kMaxTreemapBoxes / 2);
    std::size_t count = 0;
    for (const TreemapBox& box : boxes) {
      count += box.kind == BoxKind::kModule ? 0 : box.count;
    }
    EXPECT_EQ(count, tensors.size());
  }
}

TEST(Treemap, HasNoBoxesForNoBytes) {
  EXPECT_THAT(lay_out_treemap(make_module_tree({}), kArea), IsEmpty());
  const std::vector<InspectedTensor> empty{tensor("a", 0), tensor("b.c", 0)};
  EXPECT_THAT(lay_out_treemap(make_module_tree(empty), kArea), IsEmpty());
}

TEST(Treemap, LeavesOutWhatHasNoBytesBesideWhatHas) {
  const std::vector<InspectedTensor> tensors{tensor("a", 1), tensor("empty", 0)};
  const auto boxes = lay_out_treemap(make_module_tree(tensors), kArea);
  ASSERT_EQ(boxes.size(), 1U);
  EXPECT_NEAR(boxes[0].place.area(), kArea.area(), 1e-6);
}

}  // namespace
}  // namespace onnx_external
