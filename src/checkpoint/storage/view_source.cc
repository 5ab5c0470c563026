#include "checkpoint/storage/view_source.h"

#include <utility>

#include "base/try.h"

namespace onnx_external {

StorageSource storage_source(const FileContents& part, std::uint32_t index) {
  const Storage& storage = part.storages[index];
  return {.index = index,
          .storage = storage,
          .file = storage.computed ? nullptr : part.files[storage.file].get(),
          .computed = storage.computed ? &part.computed.at(index) : nullptr};
}

Status with_reader(const StorageSource& source, InflatedStorages& inflated, const TensorView& view,
                   const std::function<Status(const ElementReader&)>& use) {
  const Storage& storage = source.storage;
  if (storage.computed) {
    return use(ElementReader(view, storage, *source.computed));
  }
  const SourceFile& file = *source.file;
  if (storage.compression == Compression::kNone) {
    return use(ElementReader(view, storage, [&](std::uint64_t offset, std::span<std::byte> chunk) {
      return file.read(storage.offset + offset, chunk);
    }));
  }
  TRY_ASSIGN(const auto place, inflated.get(source.index, storage, file));
  return use(ElementReader(view, storage, [&](std::uint64_t offset, std::span<std::byte> chunk) {
    return read_exact(place.fd, place.offset + offset, chunk, "inflated record of " + file.name());
  }));
}

ReadSource view_source(const FileContents& part, const TensorView& view,
                       std::shared_ptr<InflatedStorages> inflated) {
  const StorageSource from = storage_source(part, view.storage);
  return [view, storage = from.storage,
          file = from.file == nullptr ? nullptr : part.files[from.storage.file],
          computed = from.computed == nullptr ? ReadSource() : *from.computed,
          inflated = std::move(inflated)](std::uint64_t first, std::span<std::byte> out) {
    const StorageSource source{view.storage, storage, file.get(), &computed};
    return out.empty() ? Status()
                       : with_reader(source, *inflated, view, [&](const ElementReader& reader) {
                           return reader.read(first, out);
                         });
  };
}

}  // namespace onnx_external
