// Reads byte strings in a pickle, in the spelling of any protocol.
//
// Sources: CPython Lib/pickle.py, save_bytes; numpy's and torch's __reduce__ use nothing else.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The place of the bytes; equal values refer to the same bytes.
struct SpelledBytes {
  NodeId node = 0;         // the byte string, the text, or the empty call bytes()
  bool is_latin1 = false;  // for a text: its characters are the bytes

  friend auto operator<=>(const SpelledBytes&, const SpelledBytes&) = default;
};

// Bytes (protocol 3 and later), str of Python 2, _codecs.encode(text, "latin1") and bytes()
// (protocols 0 to 2); nullopt for anything else.
[[nodiscard]] std::optional<SpelledBytes> spelled_bytes(const Pickle& pickle, NodeId id);

// An upper bound on the size of copy_bytes().
[[nodiscard]] std::uint64_t most_bytes(const Pickle& pickle, const SpelledBytes& spelled);

// kCorrupt: bytes that were left out (pickle_stream.h), text with other characters.
[[nodiscard]] Result<std::string> copy_bytes(const Pickle& pickle, const SpelledBytes& spelled);

}  // namespace onnx_external
