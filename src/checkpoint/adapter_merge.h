// Merges adapters of peft into the checkpoint of their base.
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The folder of an adapter (adapter_config.json and adapter_model.*, without a model's weights),
// if the path is one, or its adapter_model.*.
[[nodiscard]] std::optional<std::filesystem::path> adapter_folder(
    const std::filesystem::path& path);

// Replaces the tensors that the adapter changes by W + scale * B @ A, computed in float32 when they
// are read and rounded to the type of W, and those that it saved whole by these, as peft does.
//
// `base`: the path of the checkpoint's first argument, whose config.json states the kind of model.
// kUnsupported for an adapter that is more than two matrices for each weight, such as DoRA;
// kMismatch and kNotFound for one of another base; kCorrupt for a damaged one.
[[nodiscard]] Status merge_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base, const OpenOptions& options,
                                   CheckpointAccess::Contents& contents);

// The same for an adapter in a GGUF file (is_gguf_adapter() in gguf/). `base` is a GGUF model, or a
// folder or file beside a config.json, which says how many heads there are.
[[nodiscard]] Status merge_gguf_adapter(const std::filesystem::path& path,
                                        const std::filesystem::path& base,
                                        CheckpointAccess::Contents& contents);

}  // namespace onnx_external
