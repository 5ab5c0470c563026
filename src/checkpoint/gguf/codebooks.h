// Provides the codebooks of GGUF's types IQ1, IQ2 and IQ3. A code is an index into a codebook,
// whose entries are vectors of 4 or 8 small integers.
#pragma once

#include <cstdint>

namespace onnx_external {

// Each function returns a pointer to the first integer of entry 0. The other integers and entries
// follow. The tables are built once and never freed. Thread-safe.
[[nodiscard]] const std::int8_t* iq1_entries();      // 2048 entries of 8 integers: -8, 0, 8
[[nodiscard]] const std::int8_t* iq2_xxs_entries();  // 256 entries of 8: 8, 25, 43
[[nodiscard]] const std::int8_t* iq2_xs_entries();   // 512 entries of 8
[[nodiscard]] const std::int8_t* iq2_s_entries();    // 1024 entries of 8
// 256 entries of 4: 4, 12, 20, 28, 36, 44, 52, 62.
[[nodiscard]] const std::int8_t* iq3_xxs_entries();
[[nodiscard]] const std::int8_t* iq3_s_entries();  // 512 entries of 4: 1, 3, ..., 15

}  // namespace onnx_external
