// Distributed checkpoints (torch.distributed.checkpoint, DCP): a folder with `.metadata` and files
// of torch.save slices, one for each chunk of each tensor.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::string_view kDcpMetadataName = ".metadata";
inline constexpr std::string_view kDcpSuffix = ".distcp";

// Format "dcp". `metadata` is the file of that name; the others are opened beside it, as open_shard
// does, and only those that the selected tensors need. A tensor of one chunk is a plain storage;
// one of several is computed: put together while it is read.
// kUnsupported for chunks that torch.save did not write, or wrote compressed; kCorrupt for chunks
// that leave a hole, overlap, or are not of the declared type and shape, and for slices that share
// bytes.
[[nodiscard]] Result<FileContents> read_dcp(std::shared_ptr<const SourceFile> metadata,
                                            const OpenOptions& options);

}  // namespace onnx_external
