// Identifies folders that were passed by mistake as a transformers model or as a checkpoint, such
// as adapters, parts of a training run, and models of other libraries. Looks at the names of their
// files and at a few small JSON files; reads no weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace onnx_external {

enum class FolderKind : std::uint8_t {
  kForeign,    // a model of another library, or weights in a format that is not supported
  kAdapter,    // weights that modify another model
  kQuantized,  // its config says that it is quantized
  kPart,       // it has other parts besides the transformers model, which is not an error
};

struct FolderFact {
  FolderKind kind = FolderKind::kForeign;
  std::string text;  // "adapter_config.json: an adapter (LORA) of 'acme/base'; merge it first ..."
};

// Returns everything that is known about the folder, the most important fact first; empty for a
// plain transformers model. Files that cannot be read are ignored.
[[nodiscard]] std::vector<FolderFact> folder_facts(const std::filesystem::path& folder);

// Explains why a folder has no checkpoint that can be read: "'m.gguf' is a GGUF file ...; take
// ...". Returns "" if the reason is not known.
[[nodiscard]] std::string why_no_checkpoint(const std::filesystem::path& folder);

}  // namespace onnx_external
