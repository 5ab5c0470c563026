// Checkpoints as bytes, opened and read.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {

inline Result<Checkpoint> open_bytes(const std::string& bytes, const OpenOptions& options = {}) {
  const TempDir dir;  // the open descriptor outlives it
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

inline std::string read_all(const Checkpoint& checkpoint, std::size_t tensor) {
  std::string bytes(checkpoint.nbytes(tensor), '\0');
  EXPECT_THAT(checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(bytes))), IsOk());
  return bytes;
}

// A zip around a pickle, with the records data/0, data/1, ...
inline std::string zip_of(const PickleBuilder& pickle, const std::vector<std::string>& storages) {
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.bytes()});
  for (std::size_t i = 0; i < storages.size(); ++i) {
    zip.add({.name = "a/data/" + std::to_string(i), .data = storages[i]});
  }
  zip.add({.name = "a/version", .data = "3\n"});
  return zip.finish();
}

}  // namespace onnx_external
