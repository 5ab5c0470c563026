// Reads and writes the note in a piece that identifies its parent, which is the model that the
// piece was cut from. The note is in metadata_props under the key kCutFromKey:
//
// {"file": "model.onnx", "bytes": 1234, "crc32": "0123abcd"}
//
// A note in a model is treated as untrusted input.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "onnx_external/result.h"
#include "save/identity.h"

namespace onnx_external {

struct ParentNote {
  std::string file;  // a plain file name, in the folder of the piece
  ModelIdentity model;

  friend bool operator==(const ParentNote&, const ParentNote&) = default;
};

[[nodiscard]] std::string parent_note_text(const ParentNote& note);

// Returns nullopt for a model that is not a piece. Fails with kCorrupt for a note that
// parent_note_text() cannot have written, except that unknown members are ignored.
[[nodiscard]] Result<std::optional<ParentNote>> read_parent_note(const onnx::ModelProto& model);

}  // namespace onnx_external
