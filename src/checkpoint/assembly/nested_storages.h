// Reads storages that are embedded in a pickle as torch.storage._load_from_bytes(b'<a whole torch
// file>'). pickle.dump() writes tensors in this way, and torch does so for copies of old storages
// (torch/storage.py; __reduce__ writes legacy files, and its loader also accepts zip files).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/torch/legacy_file.h"
#include "checkpoint/torch/pickle_bytes.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Replaces each call of _load_from_bytes() in a pickle by the persistent id of a storage, which
// find() then looks up.
class NestedStorages {
 public:
  // `text_offset` is the offset of the pickle in the first file of `part`, or nullopt if that file
  // does not contain its bytes unchanged, for example because the record is deflated. `part` must
  // outlive this object.
  NestedStorages(std::optional<std::uint64_t> text_offset, FileContents& part)
      : text_offset_(text_offset), part_(part) {}

  // Replaces the calls. A call whose argument is not a byte string with a torch storage is left
  // unchanged, and add_tensors() then rejects its tensor. Errors: kCorrupt.
  [[nodiscard]] Status resolve(Pickle& pickle);

  // Returns the index in part.storages of a nested storage, or nullopt if the storage is not
  // nested. Errors: kCorrupt.
  [[nodiscard]] std::optional<Result<std::uint32_t>> find(const TensorDeclaration& declared);

 private:
  // The location of a nested file's bytes: in the first file of the part, or in memory.
  struct Source {
    std::shared_ptr<const std::string> memory;
    ByteRange place;
  };
  struct Nested {
    std::shared_ptr<const std::string> memory;
    Storage storage;                     // `offset` is relative to the start of the source
    std::optional<std::uint32_t> index;  // in part.storages
  };
  struct NestedFile {
    Pickle object;  // its root is a storage
    TensorDeclaration declared;
    Storage storage;
  };
  [[nodiscard]] Status resolve_call(Pickle& pickle, NodeId id);
  [[nodiscard]] std::optional<Source> source_of(const Pickle& pickle,
                                                const SpelledBytes& bytes) const;
  [[nodiscard]] Result<NodeId> read_nested(Pickle& pickle, const Source& source);
  [[nodiscard]] Result<NestedFile> read_file(const Source& source) const;
  [[nodiscard]] static Result<NestedFile> read_legacy(PickleStream& stream);
  [[nodiscard]] static Result<NestedFile> read_zip(const std::shared_ptr<const SourceFile>& whole,
                                                   const ByteRange& place);
  [[nodiscard]] std::uint32_t add_storage(const Nested& nested);

  std::optional<std::uint64_t> text_offset_;
  FileContents& part_;
  // Maps the bytes of a nested file to the node of its persistent id, or to nullopt if they are not
  // a storage.
  std::map<SpelledBytes, std::optional<NodeId>> known_;
  std::map<std::string, Nested> storages_;
};

}  // namespace onnx_external
