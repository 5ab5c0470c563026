// Tensors that are in no checkpoint file: in the caller's memory, in ranges of files that the
// caller names, or made by a function of the caller. They become a Checkpoint like any other, so
// mapping, ties, layouts, conversions, verification and transactions are the same for all.
//
//   std::vector<LooseTensor> tensors;
//   tensors.push_back({.info = {"fc.weight", DType::kFloat32, {10, 4}},
//                      .storage = MemoryBytes{bytes.data(), bytes.size(), nullptr}});
//   auto checkpoint = checkpoint_of(std::move(tensors));
//
// (save_external.h saves it. A real program checks the Result before it uses the value.)
//
// The element order of all three is little-endian. Tensors are tied if they view the same bytes in
// the same way: equal addresses (or places of one file), element sizes, shapes and strides. A
// matrix and its transpose share an address, but are not tied.
//
// Memory and made bytes have no file, whose times would tell that it has changed. A save that uses
// them is therefore never resumed and never split among processes, and the layout kLink refuses
// them. If memory changes during a save, verification finds it and nothing is published.
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

// Bytes in memory. They are written from where they are, without a copy, and compared with what was
// written before it is published. They must stay readable during the lifetime of the checkpoint,
// which keeps `owner` alive; with a null `owner` the caller sees to that. Blocks may overlap;
// tensors of equal addresses in different blocks are tied all the same.
struct MemoryBytes {
  const std::byte* data = nullptr;  // may be null if `size` is 0
  std::uint64_t size = 0;
  std::shared_ptr<const void> owner;
};

// A range of a file. It is copied inside the kernel where possible, and kLink can refer to it. Each
// file is opened once, when the checkpoint is made, and stays open. A file that changes afterwards
// is an error. At most 128 different files stay open; ranges of further ones are MadeBytes, which
// open their file, see that it has not changed, and read.
struct FileBytes {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Bytes that do not exist yet. `make` fills `out`, of `size` bytes, and is called once for each
// part that a save writes (plan.h): once for each tensor, unless tied names are stored apart. It is
// called once more for each question of the mapping that only these bytes can answer (evidence.h,
// learn.h). It may be called from several threads at once, up to LooseOptions::max_made_at_once. An
// error that it returns, or an exception, ends the save, and nothing is published.
//
// What is written is verified by the CRC-32 of what `make` delivered. Whatever else would need the
// bytes is refused: Checkpoint::read(), Dedup::kContent.
struct MadeBytes {
  std::uint64_t size = 0;
  std::function<Status(std::span<std::byte> out)> make;
  // Tensors of equal `identity`, unless it is 0, have the same bytes if their views are equal, too:
  // they are tied.
  std::uint64_t identity = 0;
};

// One tensor as a view of its bytes. A plain value.
struct LooseTensor {
  TensorInfo info;
  std::vector<std::int64_t> strides = {};  // elements, one per dimension; empty = contiguous
  std::uint64_t storage_offset = 0;        // bytes from the start of `storage` to element 0
  // torch's lazy bits: the value is the conjugate or the negative of what `storage` holds.
  bool conj = false;
  bool neg = false;
  std::variant<MemoryBytes, FileBytes, MadeBytes> storage = {};
};

struct LooseOptions {
  // The bytes of at most so many tensors that are made exist at a time, whatever the number of
  // threads; at least 1. A thread holds those of one tensor and waits for no second one.
  int max_made_at_once = 2;
};

// A checkpoint of these tensors, in their order; its format() is "loose". Nothing is read, and no
// bytes are made. kInvalidArgument if a tensor has no name, a name that is not UTF-8 or one that
// another has, a shape or strides that are negative, too many or overflow, conj or neg of a type
// that has no such bits, bytes that its view leaves, or null data; kCorrupt if a range is not
// inside its file; kNotFound, kIo. The message names the tensor.
[[nodiscard]] Result<Checkpoint> checkpoint_of(std::vector<LooseTensor> tensors,
                                               const LooseOptions& options = {});

}  // namespace onnx_external
