// Reads data in torch's legacy format, from a file or from a byte string in a pickle. The format
// has five consecutive pickles, followed by the bytes of the storages.
//
// Source: torch/serialization.py, _legacy_save and _legacy_load.
#pragma once

#include <map>
#include <string>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/pickle/pickle_stream.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The byte ranges of the storages by key. The map is ordered, because a file could force hash
// collisions.
using StorageBlocks = std::map<std::string, ByteRange>;

// The object that the file pickled, with its storages in the current form ('storage', class, key,
// location, numel), and the byte ranges of these storages.
struct LegacyFile {
  Pickle object;
  StorageBlocks blocks;
};

// Reads the five pickles and finds the ranges of the storages without reading their bytes. Error
// messages begin with "byte N". Requires: is_legacy_torch() is true for the first bytes.
[[nodiscard]] Result<LegacyFile> read_legacy_file(PickleStream& stream);

// Returns the range of a storage. Fails with kCorrupt if the storage is missing or its size differs
// from the declared size.
[[nodiscard]] Result<ByteRange> find_block(const StorageBlocks& blocks,
                                           const TensorDeclaration& declared);

// Adds a Storage, a plain range of the first file of `part`, for each storage that listed tensors
// view.
class BlockStorages {
 public:
  // Both arguments must outlive this object.
  BlockStorages(const StorageBlocks& blocks, FileContents& part) : blocks_(blocks), part_(part) {}

  // Returns the index of the storage in part.storages. Errors: kCorrupt.
  [[nodiscard]] Result<std::uint32_t> find(const TensorDeclaration& declared);

 private:
  const StorageBlocks& blocks_;
  FileContents& part_;
  std::map<std::string, std::uint32_t> storages_;
};

}  // namespace onnx_external
