// Creates a Checkpoint from tensors that the caller provides: in memory, as ranges of files, or
// produced on demand by a function. Mapping, ties, layouts, conversions, verification and
// transactions work as for checkpoint files.
//
//   std::vector<ProvidedTensor> tensors;
//   tensors.push_back({.info = {"fc.weight", DType::kFloat32, {10, 4}},
//                      .storage = MemoryBytes{bytes.data(), bytes.size(), nullptr}});
//   auto checkpoint = checkpoint_of(std::move(tensors));
//
// The functions in save_external.h save such a checkpoint. (A real program checks the Result before
// it uses the value.)
//
// All three kinds of bytes hold little-endian elements. Two tensors are tied if their addresses (or
// their offsets in one file), element sizes, shapes and strides are equal. A matrix and its
// transpose may have the same address, but are not tied.
//
// Because bytes in memory and bytes produced on demand have no modification time, changes to them
// cannot be detected later. A save that uses them is therefore never resumed, is never split among
// processes, and cannot have the layout kLink. If memory changes during a save, verification fails
// and nothing is published.
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
// written file before it publishes the model. The bytes must stay readable for the lifetime of the
// checkpoint. The checkpoint keeps `owner` alive; if `owner` is null, the caller must keep the
// bytes alive. Blocks may overlap; tensors at equal addresses are tied even if they are in
// different blocks.
struct MemoryBytes {
  const std::byte* data = nullptr;  // may be null if `size` is 0
  std::uint64_t size = 0;
  std::shared_ptr<const void> owner;
};

// A range of a file. It is copied inside the kernel where possible, and kLink can refer to it. Each
// file is opened when the checkpoint is created, and stays open. Reading a file that changed
// afterwards is an error. At most 128 different files stay open. Each further file is opened again
// for every read and must not have changed; its ranges are treated as LazyBytes.
struct FileBytes {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Bytes that are produced on demand. `make` fills `out`, which has `size` bytes. A save calls
// `make` once for each range that it writes (plan.h). This is one call per tensor, unless tied
// tensors are stored separately. The mapping calls `make` again each time it must compare these
// bytes (evidence.h, learn.h). Up to ProvidedOptions::max_lazy_at_once threads may call it at the
// same time. If it returns an error or throws an exception, the save fails and nothing is
// published.
//
// The written bytes are verified with the CRC-32 of the bytes that `make` produced. Any other use
// of the bytes, such as Checkpoint::read() or Dedup::kContent, is an error.
struct LazyBytes {
  std::uint64_t size = 0;
  std::function<Status(std::span<std::byte> out)> make;
  // If not 0, tensors with the same `identity` and equal views are tied, that is, they have the
  // same bytes.
  std::uint64_t identity = 0;
};

// A tensor, described as a view of its bytes.
struct ProvidedTensor {
  TensorInfo info;
  std::vector<std::int64_t> strides = {};  // in elements, one per dimension; empty = contiguous
  std::uint64_t storage_offset = 0;        // bytes from the start of `storage` to element 0
  // torch's lazy bits. If set, the value is the conjugate or the negative of what `storage` holds.
  bool conj = false;
  bool neg = false;
  std::variant<MemoryBytes, FileBytes, LazyBytes> storage = {};
};

struct ProvidedOptions {
  // The maximum number of LazyBytes tensors in memory at the same time, for any number of threads;
  // at least 1. Each thread holds at most one such tensor.
  int max_lazy_at_once = 2;
};

// Returns a checkpoint with these tensors, in the given order; its format() is "loose". No bytes
// are read, and `make` is not called.
//
// Errors (the message names the tensor):
// - kInvalidArgument if a name is missing, not UTF-8 or used twice.
// - kInvalidArgument if dimensions or strides are negative, too many or too large, if a view
//   reaches outside its bytes, or if data is null.
// - kInvalidArgument if conj or neg is set for a type that has no such bit.
// - kCorrupt if a range is not inside its file.
// - kNotFound, kIo.
[[nodiscard]] Result<Checkpoint> checkpoint_of(std::vector<ProvidedTensor> tensors,
                                               const ProvidedOptions& options = {});

}  // namespace onnx_external
