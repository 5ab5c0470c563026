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
  kForeign,    // a model of another library, or weights in a format that is not read
  kAdapter,    // weights that change those of another model
  kQuantized,  // as its config states
  kPart,       // it has parts beside the model of transformers; this is no reason to refuse it
};

struct FolderFact {
  FolderKind kind = FolderKind::kForeign;
  std::string text;  // "adapter_config.json: an adapter (LORA) of 'acme/base'; merge it first ..."
};

// Everything that is known of the folder, in the order in which it matters; empty for a plain model
// of transformers. What cannot be read is left out.
[[nodiscard]] std::vector<FolderFact> folder_facts(const std::filesystem::path& folder);

// Why a folder has no checkpoint that is read: "'m.gguf' is a GGUF file ...; take ...". Empty if
// nothing is known.
[[nodiscard]] std::string why_no_checkpoint(const std::filesystem::path& folder);

}  // namespace onnx_external
