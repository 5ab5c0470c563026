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

// The files of a model, and the tensors of all of them.
struct GgufModel {
  std::vector<GgufFile> parts;
  std::vector<GgufTensor> tensors;
  std::vector<std::size_t> part_of;  // for each tensor, the index of its part

  [[nodiscard]] const GgufFile& part_with(std::size_t tensor) const {
    return parts[part_of[tensor]];
  }
  [[nodiscard]] const GgufMetadata& metadata() const { return parts.front().metadata; }
};

// Reads the header of a file and, if it is the first of several parts, also the headers of the
// other parts next to it. Long arrays are not kept. kCorrupt if the parts do not belong together;
// errors of opening and of read_gguf_file().
[[nodiscard]] Result<GgufModel> read_gguf_parts(std::shared_ptr<const SourceFile> file);

// Returns the name of the first part if `name` is that of a part ("NAME-00002-of-00003.gguf");
// otherwise "".
[[nodiscard]] std::string first_gguf_part(std::string_view name);

}  // namespace onnx_external
