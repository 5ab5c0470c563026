#include "inspect/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace onnx_external {
namespace {

using testing::ElementsAre;

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

TEST(ModuleTree, CapsSumsAtTheLargestNumber) {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  const std::vector<InspectedTensor> tensors{tensor("a.v", most / 2), tensor("a.w", most / 2),
                                             tensor("a.x", most / 2)};
  EXPECT_EQ(make_module_tree(tensors)[0].bytes, most);
}

}  // namespace
}  // namespace onnx_external
