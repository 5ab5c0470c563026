// Opens bytes as a checkpoint, and returns the names that it lists.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {

inline Result<Checkpoint> open_bytes(const std::string& bytes, const OpenOptions& options = {}) {
  const TempDir dir;  // the descriptor stays open after the folder is removed
  const std::vector<std::filesystem::path> paths{dir.write("c.pt", bytes)};
  return open_checkpoint(paths, options);
}

inline std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> all;
  for (const TensorView& tensor : checkpoint.tensors()) {
    all.push_back(tensor.name);
  }
  return all;
}

// Returns the names of the tensors. If opening failed, returns only the error message.
inline std::vector<std::string> names(const Result<Checkpoint>& checkpoint) {
  return checkpoint ? names(*checkpoint) : std::vector{checkpoint.error().message};
}

inline std::string read_all(const Checkpoint& checkpoint, std::size_t tensor) {
  std::string bytes(checkpoint.nbytes(tensor), '\0');
  EXPECT_THAT(checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(bytes))), IsOk());
  return bytes;
}

}  // namespace onnx_external
