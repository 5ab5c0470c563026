// Reads files whose tensors one pickle declares: those that torch.save writes, now and before torch
// 1.6, and those that pickle.dump writes without it.
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
// whose size differs from its pickle, or a missing record. If a tensor cannot be read, the call
// fails (kUnsupported) or, with kEverything, lists it in `refused`. Requires: the archive has a
// record data.pkl.
[[nodiscard]] Result<FileContents> read_torch_zip(const ZipArchive& zip,
                                                  const OpenOptions& options);

// Format "torch-legacy", of torch 0.1.10 to 1.5, and of later versions with
// _use_new_zipfile_serialization=False. One Storage, a plain range of the file, for each one that a
// listed tensor views. kCorrupt: a storage that is missing, duplicated, past the end of the file,
// or not of the size that its pickle states. kUnsupported: storages of unknown classes.
[[nodiscard]] Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                                     const OpenOptions& options);

// Format "pickle", in which storages are byte strings. Storages are plain ranges of the file if the
// pickle holds their bytes as they are (protocols 3 to 5), and computed if it spells them as text.
// Bytes after the pickle are ignored. kCorrupt, kUnsupported.
[[nodiscard]] Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                                    const OpenOptions& options);

}  // namespace onnx_external
