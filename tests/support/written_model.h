// Writes a model into a temporary folder part by part, so that a test can break any part.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "support/graph_builder.h"
#include "support/temp_dir.h"

namespace onnx_external {

using Entries = std::vector<std::pair<std::string, std::string>>;

inline std::uint32_t crc_of(const std::string& bytes) {
  Crc32 crc;
  crc.update(std::as_bytes(std::span(bytes)));
  return crc.value();
}

// Returns `count` pseudorandom bytes.
inline std::string pattern_bytes(std::size_t count, unsigned seed = 1) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    bytes[i] = static_cast<char>(seed >> 24U);
  }
  return bytes;
}

class WrittenModel {
 public:
  GraphBuilder graph;

  // Adds a one-dimensional float initializer (bytes.size() / 4 elements) in its own file.
  WrittenModel& add(const std::string& name, const std::string& bytes) {
    const std::string location = "initializers/" + name;
    files_.write(location, bytes);
    graph.external(
        name, kFloat, {static_cast<std::int64_t>(bytes.size() / 4)},
        {{"location", location}, {"offset", "0"}, {"length", std::to_string(bytes.size())}});
    ManifestTensor record;
    record.slot = name;
    record.key = name;
    record.rule = "exact";
    record.file = name;
    record.length = bytes.size();
    record.crc32 = crc_of(bytes);
    record.data_type = kFloat;
    record.dims = {static_cast<std::int64_t>(bytes.size() / 4)};
    manifest.tensors.push_back(record);
    return *this;
  }

  // Writes model.onnx and returns its path.
  std::filesystem::path write() {
    manifest.model_file = "model.onnx";
    manifest.model_bytes = graph.bytes().size();
    manifest.model_crc32 = crc_of(graph.bytes());
    return files_.write("model.onnx", graph.bytes());
  }

  // Writes model.onnx and its manifest.
  std::filesystem::path write_with_manifest() {
    const std::filesystem::path path = write();
    files_.write("initializers/manifest.json", manifest_text(manifest));
    return path;
  }

  Manifest manifest;

  [[nodiscard]] const TempDir& files() const { return files_; }
  [[nodiscard]] std::filesystem::path file(const std::string& name) const {
    return files_.path() / "initializers" / name;
  }

  // Flips the lowest bit of one byte.
  void flip(const std::string& name, std::size_t byte) const {
    std::string bytes = read_text(file(name));
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    files_.write("initializers/" + name, bytes);
  }

 private:
  TempDir files_;
};

// Returns "code tensor" for each finding, in order.
inline std::vector<std::string> codes(const VerifyReport& report) {
  std::vector<std::string> out;
  for (const Finding& finding : report.findings) {
    out.push_back(std::string(finding_code_name(finding.code)) +
                  (finding.tensor.empty() ? "" : " " + finding.tensor));
  }
  return out;
}

}  // namespace onnx_external
