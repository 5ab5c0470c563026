// Chooses the options of readers under test, and makes checkpoints of their results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "checkpoint/quantized/quantized_tensors.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/expansion_limit.h"
#include "checkpoint/storage/file_contents.h"

namespace onnx_external {

// Returns one of the three selections, so that each input is read only once. Inputs of all sizes
// are tried.
inline Selection selection_for(std::size_t size) {
  constexpr std::array kAll = {Selection::kEverything, Selection::kStateDict,
                               Selection::kRecordedInputs};
  return kAll[size % kAll.size()];
}

// Reads the beginning and the end of every tensor.
inline void read_tensors(const Checkpoint& checkpoint) {
  constexpr std::size_t kStart = 4096;
  constexpr std::size_t kEnd = 64;
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
inline void read_part(Result<FileContents> part) {
  if (!part) {
    return;
  }
  static const std::filesystem::path scratch = std::filesystem::temp_directory_path();
  auto contents = std::make_unique<CheckpointAccess::Contents>(scratch);
  append_contents(contents->all, *std::move(part));
  FileContents& all = contents->all;
  if (!all.declared_weights.empty() && check_tensor_expansion(all, 4, "")) {
    (void)list_quantized_as_floats(all, 0, contents->inflated, {}).has_value();
  }
  read_tensors(CheckpointAccess::make(std::move(contents)));
}

}  // namespace onnx_external
