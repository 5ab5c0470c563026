// Recognizes files that a user passed by mistake, by their first bytes or their names. These are
// files of well-known formats that are neither an ONNX graph nor a checkpoint. The readers of
// graphs and of checkpoints use the same table, which says what such a file is and how to proceed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace onnx_external {

enum class ForeignKind : std::uint8_t {
  kPacked,      // compressed or encrypted; may contain the right file
  kPointer,     // a placeholder for a file that was not downloaded
  kMessage,     // a server's response instead of the file, such as a web page
  kWeights,     // tensors in a format that the library does not read
  kCheckpoint,  // tensors in a supported format, which may also be a model's data file
  kModel,       // a graph, or a graph and its weights, in a format that is not ONNX
  kOther,
};

struct ForeignFormat {
  ForeignKind kind = ForeignKind::kOther;
  std::string what;    // "a CTranslate2 model"
  std::string advice;  // "use the checkpoint that it was converted from"

  // Returns both parts: "a CTranslate2 model; use the checkpoint that it was converted from".
  [[nodiscard]] std::string text() const { return what + "; " + advice; }
};

// The number of bytes at the beginning of a file that foreign_format() examines.
inline constexpr std::size_t kForeignBytes = 512;

// Recognizes a file by its first bytes; nullopt if the format is unknown. Formats that the library
// itself reads (zip, tar, pickle, safetensors, JSON, ONNX) are not in the table.
[[nodiscard]] std::optional<ForeignFormat> foreign_format(std::string_view head);

// Recognizes a file that was stored in place of tensor data: a placeholder, a page or message from
// a server, or another format. Because tensor data may begin with any bytes, only formats with
// unmistakable first bytes are recognized. Returns a description of the file, and how to proceed.
[[nodiscard]] std::optional<std::string> foreign_data(std::string_view head);

// Returns the first of `names` that matches one of the patterns, or null if none does. Patterns are
// separated by '|', and each may have one '*', which matches any text. `names` are the entries of a
// folder; names of folders end with '/'.
[[nodiscard]] const std::string* first_fit(std::span<const std::string> names,
                                           std::string_view patterns);

// Recognizes a file of a known format in a folder by its name alone. `names` are the entries of the
// folder. Returns a text such as "'weights.npz' is MLX weights (.npz); use the checkpoint that it
// was converted from".
[[nodiscard]] std::optional<std::string> foreign_name(std::span<const std::string> names);

// Returns "NAME is WHAT; ADVICE", with the name in quotes.
[[nodiscard]] std::string named_text(std::string_view name, std::string_view what,
                                     std::string_view advice);

// Explains why a data file may be too short for its tensors, and how to proceed. The result begins
// with "; ", so that it can be appended to a message.
[[nodiscard]] std::string short_data_text(const SourceFile& file);

// Returns the first kForeignBytes of a file, or the whole file if it is shorter. Fails with kIo.
[[nodiscard]] Result<std::string> head_of(const SourceFile& file);

// Returns whether `head`, the beginning of a file, is all zeros. This suggests an incomplete
// download or copy, but tensor data may also begin with zeros.
[[nodiscard]] bool is_all_zeros(std::string_view head);
inline constexpr std::string_view kBeginsWithZeros =
    "begins with zeros, like a file whose download or copy was not completed; download or copy it "
    "again";

// Returns whether the bytes begin like a serialized ModelProto: with the IR version, followed by
// another field of ModelProto.
[[nodiscard]] bool begins_like_onnx(std::string_view head);

// Returns whether a JSON text is a server's error message, such as {"error": "Repository not
// found"}.
[[nodiscard]] bool is_error_document(std::string_view json);

}  // namespace onnx_external
