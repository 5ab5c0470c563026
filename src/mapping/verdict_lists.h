// Selects slots (values of a graph) or keys (tensors of a checkpoint) by the verdicts of a mapping,
// such as filled, missing or unused.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace onnx_external {

// Returns the indices below `count` that have one of the verdicts, grouped by verdict in the given
// order, and ascending within a group. `verdict_of` returns the verdict for an index.
template <typename Verdict, typename VerdictOf>
std::vector<std::uint32_t> places_with(std::initializer_list<Verdict> verdicts, std::size_t count,
                                       const VerdictOf& verdict_of) {
  std::vector<std::uint32_t> places;
  for (const Verdict wanted : verdicts) {
    for (std::uint32_t place = 0; place < count; ++place) {
      if (verdict_of(place) == wanted) {
        places.push_back(place);
      }
    }
  }
  return places;
}

// Returns the names of items by their verdicts, in the order of places_with(). Items have members
// `verdict` and `name`.
template <typename Verdict, typename Item>
std::vector<std::string> names_with(std::initializer_list<Verdict> verdicts,
                                    const std::vector<Item>& items) {
  std::vector<std::string> names;
  for (const std::uint32_t place :
       places_with(verdicts, items.size(), [&](std::uint32_t i) { return items[i].verdict; })) {
    names.push_back(items[place].name);
  }
  return names;
}

}  // namespace onnx_external
