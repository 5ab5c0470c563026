// Reads exported programs (.pt2) as torch.export.save writes them: flat archives in torch 2.1 to
// 2.7, PT2 archives in later versions.
//
// Sources: torch/_export/__init__.py and torch/export/__init__.py (save), torch/export/pt2_archive,
// docs/source/export/pt2_archive.md. docs/formats.md lists the records.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether the archive has a record `serialized_exported_program.json` or `archive_format`.
[[nodiscard]] bool is_exported_program(const ZipArchive& zip);

// Reads the format "torch-export". Lists the tensors of the state dict, then the constants
// (non-persistent buffers, and tensors in the code). If an archive holds several programs, the key
// selects one by name; the key "." or kEverything lists the tensors of all programs, prefixed with
// the programs' names. With kRecordedInputs, lists the program's example inputs instead; kNotFound
// if there are none. Errors are those of read_torch_zip(). Also fails with kAmbiguous for several
// programs if no key is given, and with kUnsupported for archives that contain only compiled code
// and for programs without their weights. Requires: is_exported_program(zip).
[[nodiscard]] Result<FileContents> read_exported_program(const ZipArchive& zip,
                                                         const OpenOptions& options);

}  // namespace onnx_external
