// What a piece says about the model that it was cut from, in its metadata_props under kCutFromKey:
//
// {"file": "model.onnx", "bytes": 1234, "crc32": "0123abcd"}
//
// When it is read back, it is treated as hostile input.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "onnx_external/result.h"
#include "save/generations.h"

namespace onnx_external {

struct ParentNote {
  std::string file;  // a plain name, beside the piece
  ModelIdentity model;

  friend bool operator==(const ParentNote&, const ParentNote&) = default;
};

[[nodiscard]] std::string parent_note_text(const ParentNote& note);

// Nothing for a model that is no piece. kCorrupt for a note that is not as parent_note_text()
// writes it; members that are not known are ignored.
[[nodiscard]] Result<std::optional<ParentNote>> read_parent_note(const onnx::ModelProto& model);

}  // namespace onnx_external
