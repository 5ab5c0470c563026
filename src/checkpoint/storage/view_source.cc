#include "checkpoint/storage/view_source.h"

#include <utility>

#include "base/try.h"
#include "checkpoint/storage/element_reader.h"

namespace onnx_external {
namespace {

// Bytes of a storage, inflated first where it is compressed.
ReadSource storage_source(const FileContents& part, std::uint32_t index,
                          std::shared_ptr<InflatedStorages> inflated) {
  const Storage& storage = part.storages[index];
  if (storage.computed) {
    return part.computed.at(index);
  }
  return [index, storage, file = part.files[storage.file], inflated = std::move(inflated)](
             std::uint64_t offset, std::span<std::byte> out) -> Status {
    if (storage.compression == Compression::kNone) {
      return file->read(storage.offset + offset, out);
    }
    TRY_ASSIGN(const auto place, inflated->get(index, storage, *file));
    return read_exact(place.fd, place.offset + offset, out, "inflated record of " + file->name());
  };
}

}  // namespace

ReadSource view_source(const FileContents& part, const TensorView& view,
                       std::shared_ptr<InflatedStorages> inflated) {
  return [view, storage = part.storages[view.storage],
          bytes = storage_source(part, view.storage, std::move(inflated))](
             std::uint64_t first, std::span<std::byte> out) {
    return out.empty() ? Status() : ElementReader(view, storage, bytes).read(first, out);
  };
}

}  // namespace onnx_external
