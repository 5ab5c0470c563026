// Reads and writes the note in a piece that identifies its parent, the model that it was cut from.
// It is in metadata_props under kCutFromKey:
//
// {"file": "model.onnx", "bytes": 1234, "crc32": "0123abcd"}
//
// When it is read back, it is treated as hostile input.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "onnx_external/result.h"
#include "save/identity.h"

namespace onnx_external {

struct ParentNote {
  std::string file;  // a plain name, beside the piece
  ModelIdentity model;

  friend bool operator==(const ParentNote&, const ParentNote&) = default;
};

[[nodiscard]] std::string parent_note_text(const ParentNote& note);

// Nullopt for a model that is not a piece. kCorrupt for a note that parent_note_text() cannot have
// written; unknown members are ignored.
[[nodiscard]] Result<std::optional<ParentNote>> read_parent_note(const onnx::ModelProto& model);

}  // namespace onnx_external
