// The codebooks of GGUF's types IQ1, IQ2 and IQ3. An entry is a vector of 4 or 8 small integers.
#pragma once

#include <cstdint>

namespace onnx_external {

// The first integer of entry 0; the others follow. They live as long as the process. Thread-safe.
[[nodiscard]] const std::int8_t* iq1_entries();      // 2048 of 8 integers: -8, 0, 8
[[nodiscard]] const std::int8_t* iq2_xxs_entries();  // 256 of 8: 8, 25, 43
[[nodiscard]] const std::int8_t* iq2_xs_entries();   // 512 of 8
[[nodiscard]] const std::int8_t* iq2_s_entries();    // 1024 of 8
[[nodiscard]] const std::int8_t* iq3_xxs_entries();  // 256 of 4: 4, 12, 20, 28, 36, 44, 52, 62
[[nodiscard]] const std::int8_t* iq3_s_entries();    // 512 of 4: 1, 3, ..., 15

}  // namespace onnx_external
