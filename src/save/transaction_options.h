// What a save puts into its output folder, and under which names.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "onnx_external/plan.h"
#include "onnx_external/writer.h"
#include "save/generations.h"

namespace onnx_external {

using EntryNames = std::set<std::string, std::less<>>;  // in a folder

struct TransactionOptions {
  std::string model_name;  // of a set, empty
  std::string data_dir;
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  // Only kPerTensor has a data folder; the files of other layouts stand beside the model. In
  // kInline the only file is the model itself.
  Layout layout = Layout::kPerTensor;
  std::vector<PlannedFile> files = {};  // what is known beforehand of what will be written
  std::uint64_t hole_bytes = 0;         // in `files`: need no room on the disk
  // The name of the job (save/journal.h); a staging folder with its journal is taken over. Empty:
  // none is.
  std::string job = {};
  std::string data_name = {};         // SavePlan::data_name
  std::vector<std::string> set = {};  // the names of the models of a set; empty: a model alone
};

// Of the set, or of the model alone.
[[nodiscard]] std::vector<std::string> model_names(const TransactionOptions& options);

// The models of a set have their manifests beside them.
[[nodiscard]] bool has_manifest_in_folder(const TransactionOptions& options);
// `model`: one of model_names().
[[nodiscard]] std::string manifest_name(const TransactionOptions& options,
                                        const std::string& model);
// Relative to the output folder, and to the staging folder.
[[nodiscard]] std::string manifest_location(const TransactionOptions& options,
                                            const std::string& model);

// The entry of the output folder that is the manifest, or has it inside.
[[nodiscard]] std::string manifest_entry(const TransactionOptions& options,
                                         const std::string& model);

// The entries that will stand beside the model. The manifests are the first, because the next save
// finds by them what a killed one left.
[[nodiscard]] std::vector<std::string> data_entries(const TransactionOptions& options);

// Of each of model_names().
[[nodiscard]] std::vector<GenerationNames> generation_names(const TransactionOptions& options);

}  // namespace onnx_external
