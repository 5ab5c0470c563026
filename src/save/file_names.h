// How a tensor name becomes the name of its data file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onnx_external {

inline constexpr std::size_t kMaxDataFileNameBytes = 200;

// True when the name can be a file name as it is on every common system: [A-Za-z0-9._-], at most
// kMaxDataFileNameBytes, no "..", no dot at the start or the end, no device name of Windows, not
// the manifest's name, and not of the form that hashed_file_name() gives.
[[nodiscard]] bool is_safe_file_name(std::string_view name);

// "<escaped, cut>-<16 hex digits of the name's SHA-256>".
[[nodiscard]] std::string hashed_file_name(std::string_view name);

// For names that arrive one at a time, so that the result can depend on no other: as it is when
// safe and without upper-case letters, else hashed. Distinct on a case-insensitive file system.
[[nodiscard]] std::string streamed_file_name(std::string_view name);

// "test_data_set_N" and "input_K.pb", as the runner of onnx's backend tests looks for them.
inline constexpr std::string_view kTestSetStem = "test_data_set_";
inline constexpr std::string_view kTestInputStem = "input_";
inline constexpr std::string_view kTestInputSuffix = ".pb";
[[nodiscard]] bool is_test_set_name(std::string_view name);
[[nodiscard]] bool is_test_input_name(std::string_view name);

}  // namespace onnx_external
