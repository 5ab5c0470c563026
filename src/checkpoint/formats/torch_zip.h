// Checkpoints that torch.save has written since torch 1.6: a zip file with a pickle and storages.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Format "torch-zip". One Storage for each record that a listed tensor views.
// kCorrupt for a tensor that does not fit its record, a record of another size than its pickle
// says, a missing record. A tensor that cannot be read fails the call (kUnsupported), or is listed
// in `refused` with kEverything.
// Requires: the archive has a record data.pkl.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip,
                                                  const OpenOptions& options);

// The same, with what parse_pickle_record() gave for that record.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip, Result<Pickle> pickle,
                                                  const OpenOptions& options);

}  // namespace onnx_external
