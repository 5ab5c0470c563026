#include "base/name_map.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace onnx_external {
namespace {

// Names of 16 bytes to which the standard library (MurmurHash64A, a fixed seed) gives one hash: the
// second word undoes what the first has done.
std::vector<std::string> names_of_one_hash(std::size_t count) {
  constexpr std::uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  constexpr std::uint64_t kInverse = 0x5f7a0ea7e59b19bd;
  static_assert(kMultiplier * kInverse == 1);
  const auto mixed = [](std::uint64_t word, std::uint64_t factor) {
    word *= factor;
    return (word ^ word >> 47) * factor;
  };
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = 0xc70f6907 ^ (16 * kMultiplier);
    const std::uint64_t state = (seed ^ mixed(i, kMultiplier)) * kMultiplier;
    const std::array<std::uint64_t, 2> words{i, mixed(state ^ 42, kInverse)};
    std::string name(sizeof(words), '\0');
    std::memcpy(name.data(), words.data(), sizeof(words));
    names.push_back(name);
  }
  return names;
}

TEST(NameMap, NamesThatCollideInTheStandardLibraryDoNotCollideHere) {
  const std::vector<std::string> names = names_of_one_hash(2'000);
  std::set<std::size_t> standard;
  std::set<std::size_t> ours;
  for (const std::string& name : names) {
    standard.insert(std::hash<std::string>{}(name));
    ours.insert(NameHash{}(name));
  }
#ifdef __GLIBCXX__
  EXPECT_EQ(standard.size(), 1U);
#endif
  EXPECT_EQ(ours.size(), names.size());
}

TEST(NameMap, EveryByteAndTheLengthCount) {
  std::set<std::size_t> hashes;
  std::size_t names = 0;
  for (std::size_t length = 0; length <= 40; ++length) {
    std::string name(length, '\0');
    hashes.insert(NameHash{}(name));
    ++names;
    for (char& byte : name) {
      byte = 'x';
      hashes.insert(NameHash{}(name));
      byte = '\0';
      ++names;
    }
  }
  EXPECT_EQ(hashes.size(), names);
}

TEST(NameMap, FindsWhatWasPutIn) {
  OwnedNameMap<int> owned;
  NameMap<int> views;
  const std::vector<std::string> names = names_of_one_hash(500);
  for (std::size_t i = 0; i < names.size(); ++i) {
    owned.emplace(names[i], static_cast<int>(i));
    views.emplace(names[i], static_cast<int>(i));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(owned.at(std::string_view(names[i])), static_cast<int>(i));
    EXPECT_EQ(views.at(names[i]), static_cast<int>(i));
  }
  EXPECT_FALSE(owned.contains(std::string_view("other")));
}

TEST(NameIndexSet, FindsTheFirstIndexOfAName) {
  const std::vector<std::string> names = {"a", "b", "a", "", "b"};
  NameIndexSet indexes([&](std::uint32_t index) { return std::string_view(names[index]); });
  std::vector<std::uint32_t> firsts;
  for (std::uint32_t index = 0; index < names.size(); ++index) {
    firsts.push_back(indexes.add(index));
  }
  EXPECT_EQ(firsts, (std::vector<std::uint32_t>{0, 1, 0, 3, 1}));
  EXPECT_EQ(indexes.find("b"), 1U);
  EXPECT_EQ(indexes.find(""), 3U);
  EXPECT_EQ(indexes.find("c"), std::nullopt);
}

TEST(NameIndexSet, GrowsBeyondItsExpectedSizeAndCanBeMoved) {
  const std::vector<std::string> names = names_of_one_hash(5'000);
  NameIndexSet indexes([&](std::uint32_t index) { return std::string_view(names[index]); }, 10);
  for (std::uint32_t index = 0; index < names.size(); ++index) {
    ASSERT_EQ(indexes.add(index), index);
  }
  const NameIndexSet moved = std::move(indexes);
  for (std::uint32_t index = 0; index < names.size(); ++index) {
    ASSERT_EQ(moved.find(names[index]), index);
  }
  EXPECT_FALSE(moved.contains("other"));
  EXPECT_FALSE(NameIndexSet().contains("a"));
}

}  // namespace
}  // namespace onnx_external
