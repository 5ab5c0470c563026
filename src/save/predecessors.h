// Finishes what earlier saves into an output folder left undone: removes staging folders of killed
// saves, and the data of models that they, or this save, replaced.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"
#include "save/staging.h"
#include "save/transaction_options.h"

namespace onnx_external {

// Refers to what it is given. Requires: this save has locked the output folder.
class Predecessors {
 public:
  Predecessors(const Directory& out, const TransactionOptions& options)
      : out_(out), options_(options), names_(generation_names(options)) {}

  // The staging folder of a killed save of options.job; empty when there is none. A folder into
  // which others could have written does not count.
  [[nodiscard]] std::string find_job() const;

  // Does what a killed save had no time for. False when not all of it could be done: the staging
  // folder must stay then, because it tells what is left to do.
  [[nodiscard]] bool settle(const std::string& staging_name) const;

  // Settles and removes all staging folders but `own`. A folder that could not be settled stays,
  // with nothing in it but what tells whose data must be removed.
  void remove_stale_staging(std::string_view own) const;

  // Removes the data of the models in a staging folder or in its note. None of them is the current
  // model: it was replaced, or its save was killed between the two renames. So only copies of it
  // can need its data. `newest`: as for remove_twin_manifests().
  [[nodiscard]] RemovedData remove_data_of_staged_models(const Directory& staging,
                                                         const std::string& newest) const;

  // Replaces a folder of recorded inputs by the one in the staging folder. The old folder is then
  // in the staging folder, or removed.
  [[nodiscard]] Status replace_folder(const Directory& staging, const std::string& name,
                                      const EntryNames& files) const;

 private:
  [[nodiscard]] std::vector<std::string> staging_folders() const;
  [[nodiscard]] bool finish_exchange(const Directory& staging) const;
  [[nodiscard]] Status replace_files(const Directory& staging, const std::string& name,
                                     const EntryNames& files) const;

  const Directory& out_;
  const TransactionOptions& options_;
  GenerationNames names_;
};

}  // namespace onnx_external
