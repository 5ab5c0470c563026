// A note in the staging folder of a set, which says which models are being published.
//
// The models of a set are renamed one by one, after their data. The first rename commits the set:
// if the save is killed later, the next one into the folder publishes the models that are left
// (save/predecessors.h), and verification reports the folder as mixed until then. If it is killed
// before, the old models stay. The note exists before anything is renamed, so a later save of any
// model knows what to finish or to remove. It is text, one line for each model:
//
//   onnx-external-set 1 <number of models> <"replace" or "refuse"> <data folder>
//   <CRC-32> <bytes> <CRC-32 and bytes of the replaced model, or "-"> <name>
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/generations.h"

namespace onnx_external {

// Begins with the prefix of staging folders, so no model and no data file has this name.
inline constexpr std::string_view kSetNoteName = ".save-external.set";

struct NotedModel {
  std::string name;
  ModelIdentity model;  // the new one
  // Only where the file system cannot exchange two files, and the commit removes the old model.
  std::optional<ModelIdentity> replaced = {};

  friend bool operator==(const NotedModel&, const NotedModel&) = default;
};

struct SetNote {
  std::string data_dir;  // GenerationNames::folder
  Overwrite overwrite = Overwrite::kRefuse;
  std::vector<NotedModel> models;

  friend bool operator==(const SetNote&, const SetNote&) = default;
};

[[nodiscard]] std::string set_note_text(const SetNote& note);

// Nothing when there is no note, or it is not exactly as set_note_text() writes it: the first
// rename comes only after a complete one. An error when it cannot be read.
[[nodiscard]] Result<std::optional<SetNote>> read_set_note(const Directory& staging);

// How many of the models are in place in `out`.
[[nodiscard]] std::size_t published_models(const Directory& out, const SetNote& note);

}  // namespace onnx_external
