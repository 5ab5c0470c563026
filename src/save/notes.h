// Notes in a staging folder: small text files, which tell a later save what a killed one was about
// to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"

namespace onnx_external {

// The text of a note. Nothing when there is no such regular file, or it is longer than `max_bytes`:
// no save has written it. An error when it cannot be read.
[[nodiscard]] Result<std::optional<std::string>> read_note(const Directory& staging,
                                                           std::string_view name,
                                                           std::uint64_t max_bytes);

// How notes identify a model: "1a2b3c4d 1234", its CRC-32 and its bytes.
[[nodiscard]] std::string identity_text(const ModelIdentity& model);

}  // namespace onnx_external
