// Reads LoRA adapters from GGUF files, and gives their matrices the names that peft uses.
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

// The numbers of attention heads in the base model of an adapter. The adapter itself does not state
// them.
struct GgufHeads {
  std::uint64_t queries = 0;
  std::uint64_t keys = 0;
  std::string architecture = {};  // architecture of a GGUF model; otherwise empty
};

struct GgufAdapter {
  FileContents contents;
  float alpha = 0;
  bool has_conv1d = false;  // the weights that it changes are transposed (GPT-2)
};

// Returns whether the path is a GGUF file that holds an adapter.
[[nodiscard]] bool is_gguf_adapter(const std::filesystem::path& path);

// Returns the numbers of attention heads that a GGUF model states, or nullopt if it does not state
// them.
[[nodiscard]] std::optional<GgufHeads> heads_of_gguf(const std::filesystem::path& model);

// Lists the matrices under peft's names, with the rows of queries and keys in transformers' order.
// Fails with kUnsupported if the adapter is not a plain LoRA, or if `heads` is needed but not
// given, and with kMismatch if the adapter is for another architecture.
[[nodiscard]] Result<GgufAdapter> read_gguf_adapter(std::shared_ptr<const SourceFile> file,
                                                    const std::optional<GgufHeads>& heads);

}  // namespace onnx_external
