// LoRA adapters in GGUF files, under the names that peft gives their matrices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The numbers of heads of the model that an adapter changes, which the adapter itself does not
// state.
struct GgufHeads {
  std::uint64_t queries = 0;
  std::uint64_t keys = 0;
  std::string architecture = {};  // of a model in a GGUF file; else empty
};

struct GgufAdapter {
  FileContents contents;
  float alpha = 0;
  bool has_conv1d = false;  // its products belong to transposed weights (GPT-2)
};

// Returns whether the path is a GGUF file of an adapter.
[[nodiscard]] bool is_gguf_adapter(const std::filesystem::path& path);

// The numbers of heads that a GGUF model states; nullopt if it states none.
[[nodiscard]] std::optional<GgufHeads> heads_of_gguf(const std::filesystem::path& model);

// Lists the matrices as peft names them, with the rows of queries and keys in transformers' order.
// kUnsupported for what is not a plain LoRA, or if `heads` is needed and not known; kMismatch if
// the model has another architecture.
[[nodiscard]] Result<GgufAdapter> read_gguf_adapter(std::shared_ptr<const SourceFile> file,
                                                    const std::optional<GgufHeads>& heads);

}  // namespace onnx_external
