// Reads safetensors files, which consist of a JSON header with offsets and the bytes of the
// tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The maximum size of the header, as in the reference implementation (safetensors/src/tensor.rs,
// MAX_HEADER_SIZE).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// Reads the format "safetensors". The result has one Storage, which is the whole data section.
// Parsing is strict: the tensors must cover the data section without holes or overlaps, and the
// last tensor must end at the end of the file. Unknown members, duplicate keys and types that torch
// lacks are errors; with kEverything, tensors of such types are listed in `refused`. `options.key`
// must be empty, because there is only one flat dict.
[[nodiscard]] Result<FileContents> read_safetensors(std::shared_ptr<const SourceFile> file,
                                                    const OpenOptions& options);

}  // namespace onnx_external
