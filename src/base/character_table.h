// Defines a set of characters with a fast membership test, for code that checks many names.
#pragma once

#include <array>
#include <cstddef>

namespace onnx_external {

class CharacterTable {
 public:
  // Creates the set of characters for which is_member(char) is true.
  template <typename IsMember>
  explicit constexpr CharacterTable(const IsMember& is_member) {
    for (std::size_t code = 0; code < members_.size(); ++code) {
      members_[code] = is_member(static_cast<char>(code));
    }
  }

  [[nodiscard]] constexpr bool contains(char c) const {
    return members_[static_cast<unsigned char>(c)];
  }

 private:
  std::array<bool, 256> members_{};
};

}  // namespace onnx_external
