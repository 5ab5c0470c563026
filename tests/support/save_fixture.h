// Makes a small checkpoint with every kind of source that a writer knows and a graph that it fits,
// and saves the one into the other. For the tests of the save floor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/save_external.h"
#include "onnx_external/writer.h"
#include "save/manifest.h"
#include "support/graph_builder.h"
#include "support/pickle_builder.h"
#include "support/temp_dir.h"

namespace onnx_external {

// Returns pseudorandom bytes.
inline std::string noise(std::size_t size, std::uint32_t seed) {
  std::string text(size, '\0');
  for (char& c : text) {
    seed = seed * 1664525U + 1013904223U;
    c = static_cast<char>(seed >> 24U);
  }
  return text;
}

// Returns the bytes of the transposed matrix. Elements have `unit` bytes, and both matrices are
// row-major.
inline std::string transposed(const std::string& bytes, std::size_t rows, std::size_t columns,
                              std::size_t unit = sizeof(float)) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row) {
      out.append(bytes, (row * columns + column) * unit, unit);
    }
  }
  return out;
}

// Returns options for a save that does not wait for the disk.
inline WriteOptions fast(Overwrite overwrite = Overwrite::kRefuse) {
  WriteOptions options;
  options.sync = Sync::kNone;
  options.overwrite = overwrite;
  return options;
}

// Returns a model with one input for each of `tensors` (float or int64), with the same name and
// shape.
inline Model model_for(const std::vector<TestTensor>& tensors,
                       const std::filesystem::path& source_dir = {}) {
  GraphBuilder builder;
  std::vector<std::string> inputs;
  for (const TestTensor& tensor : tensors) {
    builder.input(tensor.name, onnx_data_type(tensor.dtype), tensor.shape);
    inputs.push_back(tensor.name);
  }
  builder.node("Use", inputs, {"y"}).output("y", kFloat, {1});
  return Model::from_proto(builder.model(), source_dir).value();
}

inline Checkpoint open_one(const std::filesystem::path& path) {
  const std::vector<std::filesystem::path> paths{path};
  return open_checkpoint(paths).value();
}

// Maps each slot to the tensor with its name.
inline Mapping map_by_name(const Model& model, const Checkpoint& checkpoint) {
  std::map<std::string, std::uint32_t> keys;
  for (std::uint32_t key = 0; key < checkpoint.tensors().size(); ++key) {
    keys[checkpoint.tensors()[key].name] = key;
  }
  Mapping mapping;
  for (std::uint32_t slot = 0; slot < model.facts().slots.size(); ++slot) {
    const auto key = keys.find(model.facts().slots[slot].name);
    if (key != keys.end()) {
      mapping.pairs.push_back({slot, key->second, Rule::kExact});
    }
  }
  return mapping;
}

// Returns large and small tensors, a view of a part of a storage, a transposed tensor, a tied one
// and an inline one. Another `seed` gives other bytes in the same shapes.
inline std::vector<TestTensor> mixed_tensors(std::uint32_t seed) {
  return {
      {.name = "large.weight", .shape = {300, 1000}, .bytes = noise(1'200'000, seed)},
      {.name = "small.bias", .shape = {16}, .bytes = noise(64, seed + 1)},
      {.name = "Small.Bias", .shape = {16}, .bytes = noise(64, seed + 2)},
      {.name = "tied.weight", .shape = {300, 1000}, .shares = "large.weight"},
      {.name = "part", .shape = {10, 1000}, .offset = 5000, .shares = "large.weight"},
      {.name = "turned",
       .shape = {40, 30},
       .bytes = noise(4800, seed + 3),
       .strides = std::vector<std::int64_t>{1, 40}},
      {.name = "steps", .dtype = DType::kInt64, .shape = {}, .bytes = noise(8, seed + 4)},
      {.name = "none", .shape = {0, 4}, .bytes = ""},
  };
}

inline Result<StagedSave> stage(const Checkpoint& checkpoint, const Model& model,
                                const std::filesystem::path& out, const WriteOptions& options,
                                const PlanOptions& plan_options = {}) {
  const auto plan = plan_save(model, checkpoint, map_by_name(model, checkpoint), {.folder = out},
                              plan_options, options);
  if (!plan) {
    return fail(plan.error());
  }
  return write_plan(*plan, model, checkpoint, out, options);
}

inline Status save_all(const Checkpoint& checkpoint, const Model& model,
                       const std::filesystem::path& out, const WriteOptions& options,
                       const PlanOptions& plan_options = {}) {
  auto staged = stage(checkpoint, model, out, options, plan_options);
  return staged ? staged->publish() : Status(fail(staged.error()));
}

// Returns the content of every regular file by its relative path. Other entries, such as folders,
// have a mark as content.
inline std::map<std::string, std::string> tree_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files[entry.path().lexically_relative(folder).string()] =
        entry.is_regular_file() ? read_text(entry.path()) : "(no file)";
  }
  return files;
}

// Returns the names that tree_of() lists.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, content] : tree_of(folder)) {
    names.push_back(name);
  }
  return names;
}

// Returns the bytes of a tensor in its file, or nothing if the file is too short.
inline std::string part_of(const std::string& file, const ManifestTensor& tensor) {
  return file.size() < tensor.offset ? "" : file.substr(tensor.offset, tensor.length);
}

// Checks that the model exists, that its manifest describes it, and that every file is as recorded.
inline testing::AssertionResult is_complete(const std::filesystem::path& out) {
  const std::string model = read_text(out / "model.onnx");
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    const std::filesystem::path folder = entry.is_directory() ? entry.path() : out;
    const auto manifest = parse_manifest(
        read_text(entry.is_directory() ? folder / std::string(kManifestName) : entry.path()));
    if (!manifest || manifest->model_crc32 != crc32_of(model) ||
        manifest->model_bytes != model.size()) {
      continue;
    }
    for (const ManifestTensor& tensor : manifest->tensors) {
      if (!tensor.file.empty() &&
          crc32_of(part_of(read_text(folder / tensor.file), tensor)) != tensor.crc32) {
        return testing::AssertionFailure() << folder / tensor.file << " is damaged";
      }
    }
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "no data folder belongs to the model in " << out;
}

}  // namespace onnx_external
