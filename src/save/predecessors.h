// Finishes what earlier saves into an output folder left undone: publishes the models of a set that
// was cut off, removes staging folders of killed saves, and the data of models that they, or this
// save, replaced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"
#include "save/set_note.h"
#include "save/staging.h"
#include "save/transaction_options.h"

namespace onnx_external {

// Whose staging folder it is: that of this save, or of an earlier one.
enum class Whose : std::uint8_t { kOwn, kOthers };

// Refers to what it is given. Requires: this save has locked the output folder.
class Predecessors {
 public:
  Predecessors(const Directory& out, const TransactionOptions& options)
      : out_(out), options_(options), names_(generation_names(options)) {}

  // The staging folder of a killed save of options.job; empty when there is none. A folder into
  // which others could have written does not count.
  [[nodiscard]] std::string find_job() const;

  // Does what a killed save had no time for, so that its staging folder can be taken over. False
  // when not all of it could be done (the folder must stay then, because it tells what is left to
  // do), and for a set that is committed.
  [[nodiscard]] bool settle(const std::string& staging_name) const;

  // Settles and removes all staging folders but `own`; publishes what is left of committed sets. A
  // folder that could not be settled stays, with nothing in it but what tells whose data must be
  // removed.
  void remove_stale_staging(std::string_view own) const;
  // The same for committed sets alone.
  void finish_sets() const;

  // Removes the data of the models in a staging folder or in its notes. None of them is the current
  // model: it was replaced, or its save was killed between the two renames. So only copies of it
  // can need its data.
  [[nodiscard]] RemovedData remove_data_of_staged_models(const Directory& staging,
                                                         Whose whose) const;

 private:
  [[nodiscard]] std::vector<std::string> staging_folders() const;
  [[nodiscard]] std::vector<GenerationNames> models_of(const std::optional<SetNote>& note) const;
  void clear(const std::string& entry) const;
  [[nodiscard]] bool publish_rest(const Directory& staging,
                                  const std::optional<SetNote>& note) const;

  const Directory& out_;
  const TransactionOptions& options_;
  std::vector<GenerationNames> names_;
};

// Publishes what is left of sets that were cut off in a folder, so that the next save meets
// complete ones. Does nothing if there are none, if the folder does not exist, or if another save
// is at work in it; what fails is left to the next save.
void finish_sets(const std::filesystem::path& out_dir, Sync sync);

}  // namespace onnx_external
