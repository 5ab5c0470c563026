// Reads TorchScript archives, as written by torch.jit.save and _save_for_lite_interpreter.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The name of the group of constants. The code of an archive refers to them as "CONSTANTS.c0",
// "CONSTANTS.c1", ..., which are also their tensor names.
inline constexpr const char* kScriptConstants = "CONSTANTS";

// Reads the format "torchscript", or "torchscript-mobile" if the archive has byte code for the
// mobile interpreter. The state dict is that of the loaded module. The constants are listed if the
// key is "CONSTANTS", or if the module has no tensors of its own because it is frozen. Packed
// quantized parameters are listed as opaque objects. Errors as for read_torch_zip. Requires: the
// archive has the records data.pkl and constants.pkl.
[[nodiscard]] Result<FileContents> read_torch_script(const ZipArchive& zip,
                                                     const OpenOptions& options);

}  // namespace onnx_external
