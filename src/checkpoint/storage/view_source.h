// Reads the elements of a view, wherever its storage has its bytes: in a file, compressed there, or
// computed.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/storage/element_reader.h"
#include "checkpoint/storage/file_contents.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The source of the bytes of one storage.
struct StorageSource {
  std::uint32_t index = 0;  // of the storage in `inflated`
  const Storage& storage;
  const SourceFile* file = nullptr;      // unless it is computed
  const ReadSource* computed = nullptr;  // if it is
};

[[nodiscard]] StorageSource storage_source(const FileContents& part, std::uint32_t index);

// Passes a reader of the view's elements to `use`. A compressed storage is inflated first, once.
// Errors of that and of `use`.
[[nodiscard]] Status with_reader(const StorageSource& source, InflatedStorages& inflated,
                                 const TensorView& view,
                                 const std::function<Status(const ElementReader&)>& use);

// Reads bytes of the contiguous, little-endian, row-major tensor. It keeps the file and `inflated`
// alive and stays valid when `part` is destroyed.
[[nodiscard]] ReadSource view_source(const FileContents& part, const TensorView& view,
                                     std::shared_ptr<InflatedStorages> inflated);

}  // namespace onnx_external
