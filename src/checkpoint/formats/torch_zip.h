// Checkpoints as written by torch.save since torch 1.6: a zip file with a pickle and storages.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Format "torch-zip". One Storage for each record that a listed tensor views.
// kCorrupt for a tensor that does not fit its record, a record whose size differs from its pickle,
// or a missing record. If a tensor cannot be read, the call fails (kUnsupported) or, with
// kEverything, lists it in `refused`.
// Requires: the archive has a record data.pkl.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip,
                                                  const OpenOptions& options);

}  // namespace onnx_external
