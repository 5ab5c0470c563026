// What earlier saves into an output folder left to be done: staging folders of the dead, and the
// data of the models that their saves, or this one, replaced.
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

// For the length of one step: refers to both. The output folder is locked by this save.
class Predecessors {
 public:
  Predecessors(const Directory& out, const TransactionOptions& options)
      : out_(out), options_(options), names_(generation_names(options)) {}

  // The staging folder of a dead saver of options.job; empty when there is none. What others could
  // have written is not gone on with.
  [[nodiscard]] std::string find_job() const;

  // Does what a dead saver had no time for. False when not all of it could be done: the staging
  // folder must stay then, as it tells what is to be done.
  [[nodiscard]] bool settle(const std::string& staging_name) const;

  // Settles and removes all staging folders but `own`. What tells whose data is to go stays as long
  // as there is such data.
  void remove_stale_staging(std::string_view own) const;

  // A model in a staging folder, or in its note, is not the current one: it was replaced, or its
  // saver died between the two renames. Either way its data outside of the folder serves nobody,
  // but for copies of it. `newest`: as remove_twin_manifests().
  [[nodiscard]] RemovedData remove_data_of_staged_models(const Directory& staging,
                                                         const std::string& newest) const;

  // Puts a folder of recorded inputs from the staging folder in the place of the old one, which is
  // then there instead or gone.
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
