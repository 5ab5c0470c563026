// Reads distributed checkpoints (torch.distributed.checkpoint, DCP). Such a checkpoint is a folder
// with a file `.metadata` and data files. The data files contain one slice, written by torch.save,
// for each chunk of each tensor.
#pragma once

#include <memory>
#include <string_view>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::string_view kDcpMetadataName = ".metadata";
inline constexpr std::string_view kDcpSuffix = ".distcp";

// Reads the format "dcp". `metadata` is the file `.metadata`. The data files next to it are opened
// as by open_shard(), but only if selected tensors need them. A tensor that consists of one chunk
// is a plain storage. A tensor that consists of several chunks is assembled while it is read. Fails
// with kUnsupported for chunks that torch.save did not write, or that it compressed. Fails with
// kCorrupt for chunks that leave a hole, overlap, or do not have the declared type and shape, and
// for slices that share bytes.
[[nodiscard]] Result<FileContents> read_dcp(std::shared_ptr<const SourceFile> metadata,
                                            const OpenOptions& options);

}  // namespace onnx_external
