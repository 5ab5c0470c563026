// What stands in a tensor's raw_data while its bytes are elsewhere: left in the file that the model
// was loaded from, or not written yet.
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

struct Placeholder {
  enum class Kind : std::uint8_t {
    kCut,       // `number` counts the tensors whose data was left in the file
    kDeferred,  // `number` is the caller's
  };
  static constexpr std::size_t kBytes = 29;

  Kind kind = Kind::kCut;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;  // kDeferred: of the raw data that will stand there
};

// Writes and knows the placeholders of one model. Immutable; from any thread.
class Placeholders {
 public:
  Placeholders();
  [[nodiscard]] std::string text(const Placeholder& placeholder) const;
  [[nodiscard]] std::optional<Placeholder> read(std::string_view raw_data) const;
  // False: none of them stands anywhere in these bytes.
  [[nodiscard]] bool may_stand_in(std::string_view bytes) const;

 private:
  static constexpr std::size_t kNonceBytes = 16;
  std::array<char, kNonceBytes> nonce_{};
};

}  // namespace onnx_external
