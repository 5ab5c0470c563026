// Finds the files of a GGUF model, which may be split into several parts.
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

// The files of a model, and the tensors in all files.
struct GgufModel {
  std::vector<GgufFile> parts;
  std::vector<GgufTensor> tensors;
  std::vector<std::size_t> part_of;  // for each tensor, the index of its part

  [[nodiscard]] const GgufFile& part_with(std::size_t tensor) const {
    return parts[part_of[tensor]];
  }
  [[nodiscard]] const GgufMetadata& metadata() const { return parts.front().metadata; }
};

// Reads the header of a file. If the file is the first of several parts, also reads the headers of
// the other parts, which are in the same folder. Long arrays are not kept. Fails with kCorrupt if
// the parts do not belong together. Other errors are those of opening the files and of
// read_gguf_file().
[[nodiscard]] Result<GgufModel> read_gguf_parts(std::shared_ptr<const SourceFile> file);

// If `name` is the name of a part, such as "NAME-00002-of-00003.gguf", returns the name of the
// first part; otherwise "".
[[nodiscard]] std::string first_gguf_part(std::string_view name);

}  // namespace onnx_external
