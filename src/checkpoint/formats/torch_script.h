// TorchScript archives: what torch.jit.save and _save_for_lite_interpreter write.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Constants of the code are named "CONSTANTS.c0", "CONSTANTS.c1", ... as the code calls them.
inline constexpr const char* kScriptConstants = "CONSTANTS";

// Format "torchscript", or "torchscript-mobile" with byte code for the mobile interpreter.
// A state dict is what state_dict() of the loaded module holds; the constants with the key
// "CONSTANTS", or when the module has no tensors of its own, as frozen ones have none. Packed
// quantized parameters are listed as opaque objects. Errors as read_torch_zip.
// Requires: the archive has the records data.pkl and constants.pkl.
[[nodiscard]] Result<FileContents> read_torch_script(const ZipArchive& zip,
                                                     const OpenOptions& options);

}  // namespace onnx_external
