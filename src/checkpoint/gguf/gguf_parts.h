// Finds the files of a GGUF model, which may be several.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf/gguf_file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The files of a model, and their tensors.
struct GgufModel {
  std::vector<GgufFile> parts;
  std::vector<GgufTensor> tensors;
  std::vector<std::size_t> part_of;  // by tensor

  [[nodiscard]] const GgufFile& part_with(std::size_t tensor) const {
    return parts[part_of[tensor]];
  }
  [[nodiscard]] const GgufMetadata& metadata() const { return parts.front().metadata; }
};

// Reads the headers of a file and, if it is the first of several, of the others beside it, without
// long arrays. kCorrupt if they do not belong together; errors of opening and of read_gguf_file().
[[nodiscard]] Result<GgufModel> read_gguf_parts(std::shared_ptr<const SourceFile> file);

// The name of the first part if `name` is one of several, "NAME-00002-of-00003.gguf"; otherwise
// empty.
[[nodiscard]] std::string first_gguf_part(std::string_view name);

}  // namespace onnx_external
