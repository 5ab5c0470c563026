// Reads the elements of a view from a storage that is plain in a file, compressed in a file, or
// computed.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/storage/element_reader.h"
#include "checkpoint/storage/file_contents.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Describes where the bytes of one storage are read from.
struct StorageSource {
  std::uint32_t index = 0;  // index of the storage in `inflated`
  const Storage& storage;
  const SourceFile* file = nullptr;      // null if the storage is computed
  const ReadSource* computed = nullptr;  // null unless the storage is computed
};

[[nodiscard]] StorageSource storage_source(const FileContents& part, std::uint32_t index);

// Passes a reader of the view's elements to `use`. A compressed storage is inflated when it is used
// for the first time. Errors are those of inflating and of `use`.
[[nodiscard]] Status with_reader(const StorageSource& source, InflatedStorages& inflated,
                                 const TensorView& view,
                                 const std::function<Status(const ElementReader&)>& use);

// Returns a source of the contiguous, little-endian, row-major tensor's bytes. The source keeps the
// file and `inflated` alive, and stays valid after `part` is destroyed.
[[nodiscard]] ReadSource view_source(const FileContents& part, const TensorView& view,
                                     std::shared_ptr<InflatedStorages> inflated);

}  // namespace onnx_external
