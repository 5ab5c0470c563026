// Reads exported programs as torch.export.save writes them (.pt2): flat archives in torch 2.1 to
// 2.7, PT2 archives since.
//
// Sources: torch/_export/__init__.py and torch/export/__init__.py (save), torch/export/pt2_archive,
// docs/source/export/pt2_archive.md. docs/formats.md lists the records.
#pragma once

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Recognized by a record `serialized_exported_program.json` or `archive_format`.
[[nodiscard]] bool is_exported_program(const ZipArchive& zip);

// Format "torch-export". The tensors are those of the state dict, then the constants (buffers that
// are not persistent, and tensors of the code). An archive may hold several programs: the key
// chooses one by its name, while the key "." or kEverything lists all, under their names. With
// kRecordedInputs the tensors are the program's example inputs instead; kNotFound if there are
// none. Errors as for read_torch_zip; kAmbiguous for several programs without a key; kUnsupported
// for archives of compiled code alone and for programs saved without their weights.
// Requires: is_exported_program(zip).
[[nodiscard]] Result<FileContents> read_exported_program(const ZipArchive& zip,
                                                         const OpenOptions& options);

}  // namespace onnx_external
