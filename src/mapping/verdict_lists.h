// Selects slots (values of a graph) or keys (tensors of a checkpoint) by the mapping's verdicts on
// them (filled, missing, unused, ...).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace onnx_external {

// Returns the indices below `count` with the first of the verdicts, in ascending order, then those
// with the second verdict, and so on. `verdict_of` returns the verdict on an index.
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

// Does the same for items that have a verdict and a name, and returns their names.
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
