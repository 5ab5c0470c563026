// Merges LoRA adapters, which peft saved or which are GGUF files, into the checkpoint of their base
// model, that is, the model for which they were trained.
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the folder of an adapter if `path` is that folder or the file adapter_model.* in it,
// otherwise nullopt. A folder is an adapter if it has adapter_config.json and adapter_model.*, but
// no weights of a complete model.
[[nodiscard]] std::optional<std::filesystem::path> adapter_folder(
    const std::filesystem::path& path);

// Replaces each tensor W that the adapter changes by W + scale * B @ A. The sum is computed in
// float32 when the tensor is read, and rounded to the type of W. If the adapter stores a complete
// tensor, this tensor replaces that of the base model, as in peft.
//
// `base` is the path of the base model's checkpoint; its config.json states the type of model.
// Fails with kUnsupported if the adapter has more than two matrices per weight, such as DoRA, with
// kMismatch or kNotFound if it belongs to another base model, and with kCorrupt if it is damaged.
[[nodiscard]] Status merge_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base, const OpenOptions& options,
                                   CheckpointAccess::Contents& contents);

// Merges an adapter that is a GGUF file (is_gguf_adapter() in gguf/), like merge_adapter(). `base`
// is a GGUF model, or the folder of a config.json or a file in it. The numbers of attention heads
// are read from the model or the config.
[[nodiscard]] Status merge_gguf_adapter(const std::filesystem::path& path,
                                        const std::filesystem::path& base,
                                        CheckpointAccess::Contents& contents);

}  // namespace onnx_external
