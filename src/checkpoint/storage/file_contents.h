// What the readers of the formats hand over, and what a Checkpoint keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/storage/inflated_storages.h"
#include "onnx_external/checkpoint.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// torch's own limit; keeps the work on one view small.
inline constexpr std::size_t kMaxRank = 64;

// The tensors of one file, or of several that were put together. Plain data.
struct FileContents {
  std::string format;
  FormatFacts facts;
  std::vector<std::shared_ptr<const SourceFile>> files;
  std::vector<Storage> storages;    // Storage::file indexes `files`
  std::vector<TensorView> tensors;  // TensorView::storage indexes `storages`; inside its bytes
  std::vector<OpaqueObject> opaque;
  std::vector<RefusedTensor> refused;
  std::vector<std::pair<std::string, std::string>> tied_names;

  // For each storage with `computed` set, by its index: reads bytes of the storage, little-endian.
  // Callable from several threads at once; keeps what it reads from alive.
  std::unordered_map<std::uint32_t, ReadSource> computed;

  // For computed storages: the storages that they are put together from, whose recorded CRC-32
  // vouches for theirs.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> made_of;

  // What computed storages keep in memory (computed_storages.h bounds it).
  std::uint64_t kept_bytes = 0;
};

// Moves everything of `part` but its format behind what `whole` has, and renumbers it.
void append_contents(FileContents& whole, FileContents part);

struct Checkpoint::Contents {
  explicit Contents(std::filesystem::path scratch_dir) : inflated(std::move(scratch_dir)) {}
  FileContents all;
  std::vector<std::uint32_t> arguments;  // one a tensor
  std::vector<OverlaidTensor> overlaid;
  std::vector<CheckpointFile> files;  // all.files, for callers
  InflatedStorages inflated;
};

}  // namespace onnx_external
