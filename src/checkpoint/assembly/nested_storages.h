// Storages inside a pickle: torch.storage._load_from_bytes(b'<a whole torch file>'), which is how
// pickle.dump and copies of old storages spell them (torch/storage.py, __reduce__, which writes
// legacy files; its loader takes zip files too).
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

// Makes each such call of a pickle the persistent id of a storage that find() knows.
class NestedStorages {
 public:
  // `text_offset`: what places in the pickle count from in the first file of `part`; nothing when
  // the text does not lie there as it is (a deflated record). `part` must outlive this.
  NestedStorages(std::optional<std::uint64_t> text_offset, FileContents& part)
      : text_offset_(text_offset), part_(part) {}

  // A call of another form stays as it is, and add_tensors refuses its tensor. kCorrupt.
  [[nodiscard]] Status resolve(Pickle& pickle);

  // Its index in part.storages; nothing for storages that are not nested. kCorrupt.
  [[nodiscard]] std::optional<Result<std::uint32_t>> find(const TensorDeclaration& declared);

 private:
  // Bytes in the first file of the part, or in memory.
  struct Source {
    std::shared_ptr<const std::string> memory;
    BytesPlace place;
  };
  struct Nested {
    std::shared_ptr<const std::string> memory;
    Storage storage;                     // its offset counts from the start of the source
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
                                                   const BytesPlace& place);
  [[nodiscard]] std::uint32_t add_storage(const Nested& nested);

  std::optional<std::uint64_t> text_offset_;
  FileContents& part_;
  // The bytes -> the persistent id; nothing when they are no storage.
  std::map<SpelledBytes, std::optional<NodeId>> known_;
  std::map<std::string, Nested> storages_;
};

}  // namespace onnx_external
