// Reads the parts of a legacy torch file, in a file of its own or in the bytes of a pickle: five
// consecutive pickles, then the bytes of the storages.
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

// The places of the bytes of storages, by key. A tree, because a file could force hash collisions.
using StorageBlocks = std::map<std::string, ByteRange>;

// One file's pickled object with its storages in today's form ('storage', class, key, location,
// numel), and where these are.
struct LegacyFile {
  Pickle object;
  StorageBlocks blocks;
};

// Reads the five pickles and locates the blocks; their bytes are not read. Errors begin with
// "byte N". Requires: is_legacy_torch() holds for the first bytes.
[[nodiscard]] Result<LegacyFile> read_legacy_file(PickleStream& stream);

// The block of a storage, after checking that sizes agree; kCorrupt.
[[nodiscard]] Result<ByteRange> find_block(const StorageBlocks& blocks,
                                           const TensorDeclaration& declared);

// Adds a Storage, a plain range of the first file of `part`, for each block that listed tensors
// view.
class BlockStorages {
 public:
  // Both must outlive this.
  BlockStorages(const StorageBlocks& blocks, FileContents& part) : blocks_(blocks), part_(part) {}

  // Its index in part.storages. kCorrupt.
  [[nodiscard]] Result<std::uint32_t> find(const TensorDeclaration& declared);

 private:
  const StorageBlocks& blocks_;
  FileContents& part_;
  std::map<std::string, std::uint32_t> storages_;
};

}  // namespace onnx_external
