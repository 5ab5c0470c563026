// Makes a Checkpoint of tensors that are in no checkpoint file, but in the caller's memory, in file
// ranges that the caller names, or produced on demand by a function of the caller. Mapping, ties,
// layouts, conversions, verification and transactions work as for checkpoint files.
//
//   std::vector<ProvidedTensor> tensors;
//   tensors.push_back({.info = {"fc.weight", DType::kFloat32, {10, 4}},
//                      .storage = MemoryBytes{bytes.data(), bytes.size(), nullptr}});
//   auto checkpoint = checkpoint_of(std::move(tensors));
//
// The functions in save_external.h save such a checkpoint. (A real program checks the Result before
// it uses the value.)
//
// All three kinds hold little-endian elements. Tensors are tied if they view the same bytes in the
// same way, that is, if their addresses (or their offsets in one file), element sizes, shapes and
// strides are equal. A matrix and its transpose share an address, but are not tied.
//
// Bytes in memory and bytes produced on demand have no modification time that would show a change.
// A save that uses them is therefore never resumed and never split among processes, and cannot have
// the layout kLink. If memory changes during a save, verification finds it and nothing is
// published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Bytes in memory. A save writes them without copying them first, and compares them with the
// written file before it publishes the model. They must stay readable for the lifetime of the
// checkpoint, which keeps `owner` alive; if `owner` is null, the caller must keep the bytes alive.
// Blocks may overlap; tensors at equal addresses are tied even if they are in different blocks.
struct MemoryBytes {
  const std::byte* data = nullptr;  // may be null if `size` is 0
  std::uint64_t size = 0;
  std::shared_ptr<const void> owner;
};

// A range of a file. It is copied inside the kernel where possible, and kLink can refer to it. Each
// file is opened once, when the checkpoint is made, and stays open. If a file changes afterwards,
// reading it is an error. At most 128 different files stay open. Any further file is opened for
// each read, after a check that it has not changed; ranges of such files count as LazyBytes.
struct FileBytes {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Bytes that are produced on demand. `make` fills `out`, which has `size` bytes. A save calls it
// once for each range that it writes (plan.h), that is, once for each tensor, unless tied tensors
// are stored separately. The mapping calls it once more whenever it must compare these bytes
// (evidence.h, learn.h). It may be called from several threads at once, up to
// ProvidedOptions::max_lazy_at_once. An error that it returns, or an exception, ends the save, and
// nothing is published.
//
// The written bytes are verified with the CRC-32 of the bytes that `make` produced. Any other use
// of the bytes, such as Checkpoint::read() or Dedup::kContent, is an error.
struct LazyBytes {
  std::uint64_t size = 0;
  std::function<Status(std::span<std::byte> out)> make;
  // Tensors with the same `identity` (not 0) and equal views have the same bytes: they are tied.
  std::uint64_t identity = 0;
};

// One tensor as a view of its bytes. A plain value.
struct ProvidedTensor {
  TensorInfo info;
  std::vector<std::int64_t> strides = {};  // elements, one per dimension; empty = contiguous
  std::uint64_t storage_offset = 0;        // bytes from the start of `storage` to element 0
  // torch's lazy bits: the value is the conjugate or the negative of what `storage` holds.
  bool conj = false;
  bool neg = false;
  std::variant<MemoryBytes, FileBytes, LazyBytes> storage = {};
};

struct ProvidedOptions {
  // The number of LazyBytes tensors that may be in memory at the same time, whatever the number of
  // threads; at least 1. Each thread holds at most one.
  int max_lazy_at_once = 2;
};

// Returns a checkpoint of these tensors, in their order; its format() is "loose". Nothing is read,
// and `make` is not called. Errors: kInvalidArgument if a name is missing, not UTF-8 or used twice,
// if dimensions or strides are negative, too many or too large, if conj or neg is set for a type
// that has no such bit, if a view reaches outside its bytes, or if data is null; kCorrupt if a
// range is not inside its file; kNotFound, kIo. The message names the tensor.
[[nodiscard]] Result<Checkpoint> checkpoint_of(std::vector<ProvidedTensor> tensors,
                                               const ProvidedOptions& options = {});

}  // namespace onnx_external
