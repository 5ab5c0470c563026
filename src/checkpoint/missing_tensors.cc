#include "checkpoint/missing_tensors.h"

#include <map>
#include <utility>
#include <vector>

#include "base/try.h"
#include "tensor/missing_data.h"

namespace onnx_external {

Status check_files(FileContents& contents) {
  std::map<std::uint32_t, std::vector<StoredRange>> files;
  const auto add = [&](const TensorView& view) -> Status {
    const Storage& storage = contents.storages[view.storage];
    if (storage.kind == StorageKind::kFile && !storage.computed && !storage.crc32 &&
        storage.compression == Compression::kNone && is_contiguous(view.shape, view.strides)) {
      TRY_ASSIGN(const auto bytes, contiguous_nbytes(view.dtype, view.shape));
      files[storage.file].push_back(
          {view.name, view.shape, storage.offset + view.storage_offset, bytes});
    }
    return {};
  };
  for (const TensorView& view : contents.tensors) {
    TRY(add(view));
  }
  for (const TensorView& view : contents.stored) {
    TRY(add(view));
  }
  for (auto& [file, ranges] : files) {
    TRY_ASSIGN(auto note, check_is_not_missing(*contents.files[file], std::move(ranges)));
    if (!note.empty()) {
      contents.notes.push_back(std::move(note));
    }
  }
  return {};
}

}  // namespace onnx_external
