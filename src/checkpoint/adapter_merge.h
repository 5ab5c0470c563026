// Merges LoRA adapters, saved by peft or as GGUF files, into the checkpoint of the model for which
// they were trained (their base).
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the folder of an adapter, if `path` is such a folder or the adapter_model.* in it;
// otherwise nullopt. The folder of an adapter has adapter_config.json and adapter_model.*, and no
// weights of a whole model.
[[nodiscard]] std::optional<std::filesystem::path> adapter_folder(
    const std::filesystem::path& path);

// Replaces each tensor W that the adapter changes by W + scale * B @ A. The sum is computed in
// float32 when the tensor is read, and rounded to the type of W. Tensors that the adapter stores
// whole replace those of the base, as in peft.
//
// `base`: the path of the checkpoint's first argument, whose config.json states the type of model.
// kUnsupported if the adapter is more than two matrices per weight, such as DoRA; kMismatch and
// kNotFound if it belongs to another base; kCorrupt if it is damaged.
[[nodiscard]] Status merge_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base, const OpenOptions& options,
                                   CheckpointAccess::Contents& contents);

// Merges an adapter in a GGUF file in the same way (is_gguf_adapter() in gguf/). `base` is a GGUF
// model, or a folder or file next to a config.json; the numbers of attention heads are read from
// it.
[[nodiscard]] Status merge_gguf_adapter(const std::filesystem::path& path,
                                        const std::filesystem::path& base,
                                        CheckpointAccess::Contents& contents);

}  // namespace onnx_external
