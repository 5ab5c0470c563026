// Lists the items that have certain verdicts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace onnx_external {

// The places from 0 to `count` with the first verdict in their order, then those with the next ...
// `verdict_of` gives the verdict on a place.
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

// The same for items that have a verdict and a name: their names.
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
