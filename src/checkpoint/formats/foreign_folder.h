// Identifies folders that were passed by mistake as a model of transformers or as a checkpoint,
// such as adapters, parts of training runs, and models of other libraries. Looks at the names of
// their files and at a few small JSON files; reads no weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace onnx_external {

enum class FolderKind : std::uint8_t {
  kForeign,    // a model of another library, or weights in a format that is not supported
  kAdapter,    // weights that change those of another model
  kQuantized,  // as its config states
  kPart,       // it has parts beside the model of transformers, which is not an error
};

struct FolderFact {
  FolderKind kind = FolderKind::kForeign;
  std::string text;  // "adapter_config.json: an adapter (LORA) of 'acme/base'; merge it first ..."
};

// Returns everything that is known about the folder, the most important first; empty for a plain
// model of transformers. Files that cannot be read are left out.
[[nodiscard]] std::vector<FolderFact> folder_facts(const std::filesystem::path& folder);

// Says why a folder has no checkpoint that can be read: "'m.gguf' is a GGUF file ...; take ...".
// Empty if nothing is known.
[[nodiscard]] std::string why_no_checkpoint(const std::filesystem::path& folder);

}  // namespace onnx_external
