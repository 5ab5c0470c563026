// Reads byte strings in a pickle, in all encodings that the protocols of pickle use for them.
//
// Sources: save_bytes in Lib/pickle.py of CPython. numpy's and torch's __reduce__ use no other
// encodings.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A byte string, by the node that encodes it. Equal values refer to the same bytes.
struct SpelledBytes {
  NodeId node = 0;         // the byte string, the text, or the empty call bytes()
  bool is_latin1 = false;  // true for a text whose characters are the bytes

  friend auto operator<=>(const SpelledBytes&, const SpelledBytes&) = default;
};

// Recognizes bytes (protocol 3 and later), Python 2's str, and _codecs.encode(text, "latin1") and
// bytes() (protocols 0 to 2). Returns nullopt for other values.
[[nodiscard]] std::optional<SpelledBytes> spelled_bytes(const Pickle& pickle, NodeId id);

// Returns an upper bound on the number of bytes that copy_bytes() returns.
[[nodiscard]] std::uint64_t most_bytes(const Pickle& pickle, const SpelledBytes& spelled);

// Returns the bytes. Fails with kCorrupt for bytes that were left out (pickle_stream.h), and for
// text with characters outside latin-1.
[[nodiscard]] Result<std::string> copy_bytes(const Pickle& pickle, const SpelledBytes& spelled);

}  // namespace onnx_external
