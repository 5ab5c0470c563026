// Identifies folders that users pass by mistake as a transformers model or as a checkpoint, such as
// adapters, parts of a training run, and models of other libraries. Folders are identified by the
// names of their files and by a few small JSON files. No weights are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace onnx_external {

enum class FolderKind : std::uint8_t {
  kForeign,    // a model of another library, or weights in a format that is not supported
  kAdapter,    // weights that modify another model
  kQuantized,  // a quantized model, according to its config
  kPart,       // contains other parts besides the transformers model; not an error
};

struct FolderFact {
  FolderKind kind = FolderKind::kForeign;
  std::string text;  // "adapter_config.json: an adapter (LORA) of 'acme/base'; merge it first ..."
};

// Returns the facts that were recognized, the most important first. A plain transformers model has
// none. Files that cannot be read are ignored.
[[nodiscard]] std::vector<FolderFact> folder_facts(const std::filesystem::path& folder);

// Returns the reason why a folder has no readable checkpoint, such as "'m.gguf' is a GGUF file ...;
// take ...". Returns "" if the reason is not known.
[[nodiscard]] std::string why_no_checkpoint(const std::filesystem::path& folder);

}  // namespace onnx_external
