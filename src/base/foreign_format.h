// Files that are given by mistake: neither an ONNX graph nor a checkpoint, but known. One table
// says what they are and what to do, for readers of graphs and of checkpoints alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace onnx_external {

enum class ForeignKind : std::uint8_t {
  kPacked,   // compressed or encrypted; what is inside may be right
  kPointer,  // stands for a file that was not fetched
  kMessage,  // what a server sent in the place of the file
  kWeights,  // tensors in a format that is not read
  kModel,    // a graph, or a graph and its weights, in a format that is not ONNX
  kOther,
};

struct ForeignFormat {
  ForeignKind kind = ForeignKind::kOther;
  std::string what;    // "a GGUF file, the format of llama.cpp"
  std::string advice;  // "take the checkpoint that it was converted from"

  // "a GGUF file, the format of llama.cpp; take the checkpoint that it was converted from".
  [[nodiscard]] std::string text() const { return what + "; " + advice; }
};

// How many bytes of a file foreign_format() looks at.
inline constexpr std::size_t kForeignBytes = 512;

// Judges a file by its first bytes. Nothing if they are none of those that are known. Formats that
// are read somewhere in the library (zip, tar, pickle, safetensors, JSON, ONNX) are not among them.
[[nodiscard]] std::optional<ForeignFormat> foreign_format(std::string_view head);

// The first kForeignBytes of a file, or all of it. kIo.
[[nodiscard]] Result<std::string> head_of(const SourceFile& file);

// Whether the bytes begin as a serialized ModelProto does: with its IR version, and another field
// of its own.
[[nodiscard]] bool begins_like_onnx(std::string_view head);

// Whether JSON text is the message of a server, such as {"error": "Repository not found"}.
[[nodiscard]] bool is_error_document(std::string_view json);

}  // namespace onnx_external
