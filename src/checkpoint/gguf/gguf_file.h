// Reads the header of one GGUF file, which consists of its metadata and the table of its tensors.
// The offsets and sizes of the tensors are checked. Source: ggml's gguf.cpp and docs/gguf.md;
// docs/formats.md has the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Decides which arrays of the metadata are kept in memory. With kShort, only short arrays of
// numbers are kept, so that memory use does not depend on the size of the vocabulary.
enum class GgufArrays : std::uint8_t { kShort, kAll };

struct GgufTensor {
  std::string name;
  Shape shape;               // outermost dimension first, unlike in the file
  std::uint32_t type = 0;    // ggml's id (block_types.h)
  std::uint64_t offset = 0;  // offset of its bytes in the file
  std::uint64_t bytes = 0;
};

struct GgufFile {
  std::shared_ptr<const SourceFile> file;
  std::uint32_t version = 0;
  ByteOrder order = ByteOrder::kLittle;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // names are unique
  std::uint64_t tokens = 0;         // size of the vocabulary
};

// Reads the header and checks every count, length and offset. The bytes of each tensor must be
// inside the file, and must not overlap those of another tensor. Errors: kCorrupt, kUnsupported and
// kIo; the message names the file.
[[nodiscard]] Result<GgufFile> read_gguf_file(std::shared_ptr<const SourceFile> file,
                                              GgufArrays arrays);

}  // namespace onnx_external
