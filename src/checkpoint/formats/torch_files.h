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

// Format "torch-zip", since torch 1.6: a zip file with a pickle and storages. One Storage for each
// record that a listed tensor views. kCorrupt for a tensor that does not fit its record, a record
// whose size is not the one that the pickle states, or a missing record. A tensor that cannot be
// read makes the call fail (kUnsupported) or, with kEverything, is listed in `refused`. Requires:
// the archive has a record data.pkl.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip,
                                                  const OpenOptions& options);

// Format "torch-legacy", written by torch 0.1.10 to 1.5, and by later versions with
// _use_new_zipfile_serialization=False. One Storage, a plain range of the file, for each storage
// that a listed tensor views. kCorrupt: a storage that is missing, duplicated, past the end of the
// file, or not of the size that the pickle states. kUnsupported: storages of unknown classes.
[[nodiscard]] Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                                     const OpenOptions& options);

// Format "pickle", in which storages are byte strings. If the pickle contains their bytes as they
// are (protocols 3 to 5), the storages are plain ranges of the file; if it encodes them as text,
// they are computed. Bytes after the pickle are ignored. Errors: kCorrupt, kUnsupported.
[[nodiscard]] Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                                    const OpenOptions& options);

}  // namespace onnx_external
