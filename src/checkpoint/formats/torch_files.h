// Reads files whose tensors are declared by one pickle: files written by torch.save, in its current
// format or in that of torch before 1.6, and files written by pickle.dump without torch.save.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reads the format "torch-zip" of torch 1.6 and later, which is a zip file with a pickle and
// storages. The result has one Storage for each record that a listed tensor views. Fails with
// kCorrupt for a tensor that exceeds its record, a record whose size differs from the size in the
// pickle, or a missing record. If a tensor cannot be read, the call fails with kUnsupported or,
// with kEverything, the tensor is listed in `refused`. Requires: the archive has a record data.pkl.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip,
                                                  const OpenOptions& options);

// Reads the format "torch-legacy", written by torch 0.1.10 to 1.5, and by later versions with
// _use_new_zipfile_serialization=False. The result has one Storage, a plain range of the file, for
// each storage that a listed tensor views. Fails with kCorrupt for a storage that is missing,
// duplicated or past the end of the file, or whose size differs from the size in the pickle. Fails
// with kUnsupported for storages of unknown classes.
[[nodiscard]] Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                                     const OpenOptions& options);

// Reads the format "pickle", in which storages are byte strings. If the pickle contains these bytes
// unchanged (protocols 3 to 5), the storages are plain ranges of the file. If it encodes them as
// text, they are computed. Bytes after the pickle are ignored. Errors: kCorrupt, kUnsupported.
[[nodiscard]] Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                                    const OpenOptions& options);

}  // namespace onnx_external
