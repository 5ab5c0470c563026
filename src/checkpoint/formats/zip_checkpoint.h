// Reads zip files that torch wrote. The format is recognized by the records in the file.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reads a torch.save file, a TorchScript archive or an exported program. Fails with kUnsupported
// for any other zip file, and for torch's formats without readable weights.
[[nodiscard]] Result<FileContents> read_zip_checkpoint(std::shared_ptr<const SourceFile> file,
                                                       const OpenOptions& options);

}  // namespace onnx_external
