// The parts of a legacy torch file, in a file of its own or in the bytes of a pickle: five pickles
// one after the other, then the bytes of the storages.
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

// Where the bytes of storages lie, by their keys. No hash: a file chooses the keys.
using StorageBlocks = std::map<std::string, BytesPlace>;

// One file's pickled object, its storages in the form ('storage', class, key, location, numel) of
// today, and where they are.
struct LegacyFile {
  Pickle object;
  StorageBlocks blocks;
};

// Reads the five pickles and locates the blocks; their bytes are not read. Errors begin with
// "byte N". Requires: is_legacy_torch() of the first bytes.
[[nodiscard]] Result<LegacyFile> read_legacy_file(PickleStream& stream);

// The block of a storage, once sizes agree; kCorrupt.
[[nodiscard]] Result<BytesPlace> find_block(const StorageBlocks& blocks,
                                            const TensorDeclaration& declared);

// The blocks that listed tensors view, each one Storage, a plain range of the first file of `part`.
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
