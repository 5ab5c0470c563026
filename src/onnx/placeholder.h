// Placeholders: short markers in a tensor's raw_data while its bytes are left in the file that the
// model was loaded from.
//
// A placeholder begins with 16 random bytes that are drawn for each model, so that no file can
// hold one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// Writes and recognizes the placeholders of one model. Immutable; any thread may use it.
class Placeholders {
 public:
  static constexpr std::size_t kBytes = 20;

  Placeholders();
  // `number` is the index of the tensor among those whose data was left in the file.
  [[nodiscard]] std::string text(std::uint32_t number) const;
  [[nodiscard]] std::optional<std::uint32_t> read(std::string_view raw_data) const;

 private:
  static constexpr std::size_t kNonceBytes = kBytes - sizeof(std::uint32_t);
  std::array<char, kNonceBytes> nonce_{};
};

}  // namespace onnx_external
