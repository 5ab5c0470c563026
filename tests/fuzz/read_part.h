// What a reader gave, made a checkpoint; the start and the end of every tensor are read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "checkpoint/contents.h"

namespace onnx_external {

inline void read_part(Result<CheckpointPart> part) {
  constexpr std::size_t kStart = 4096;
  constexpr std::size_t kEnd = 64;
  if (!part) {
    return;
  }
  static const std::filesystem::path scratch = std::filesystem::temp_directory_path();
  auto contents = std::make_unique<Checkpoint::Contents>(scratch);
  append_part(contents->all, *std::move(part));
  const Checkpoint checkpoint(std::move(contents));
  static std::array<std::byte, kStart> bytes;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const std::uint64_t all = checkpoint.nbytes(i);
    const auto start = std::span(bytes).first(std::min<std::uint64_t>(all, kStart));
    const auto end = std::span(bytes).first(std::min<std::uint64_t>(all, kEnd));
    if (checkpoint.read(i, 0, start)) {
      (void)checkpoint.read(i, all - end.size(), end).has_value();
    }
  }
}

}  // namespace onnx_external
