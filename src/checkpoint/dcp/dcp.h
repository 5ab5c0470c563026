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

// Format "dcp". `metadata` is the file `.metadata`. Of the data files next to it, only those that
// the selected tensors need are opened, in the same way as by open_shard. A tensor that consists of
// one chunk is a plain storage; a tensor that consists of several chunks is computed while it is
// read. kUnsupported: chunks that torch.save did not write or that it compressed. kCorrupt: chunks
// that leave a hole, overlap, or do not have the declared type and shape; slices that share bytes.
[[nodiscard]] Result<FileContents> read_dcp(std::shared_ptr<const SourceFile> metadata,
                                            const OpenOptions& options);

}  // namespace onnx_external
