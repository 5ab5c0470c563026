// Recognizes the format of a file by its content, and reads its tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class FileFormat : std::uint8_t {
  kTorchZip,  // any zip file; its records determine the format
  kSafetensors,
  kJson,         // perhaps a shard index
  kTorchLegacy,  // torch before 1.6, or _use_new_zipfile_serialization=False
  kTorchTar,     // torch before 0.2
  kPickle,       // a pickle without torch's framing
  kGguf,         // read_gguf() in gguf/
  kForeign,      // recognized, but not supported: gzip, HDF5, a web page ...
  kUnknown,
};

// Detects the format from the first bytes. Errors: kIo.
[[nodiscard]] Result<FileFormat> sniff_format(const SourceFile& file);

// Reads a file that contains tensors, after recognizing its format by its content. Fails with
// kUnsupported for other formats; the message names the format.
[[nodiscard]] Result<FileContents> read_checkpoint_file(std::shared_ptr<const SourceFile> file,
                                                        const OpenOptions& options);

}  // namespace onnx_external
