// Notes in the save report about files beside a model that are not its own data.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// Data files of replaced models that a save does not remove, because another tool wrote them and it
// is unknown who else needs them.
class ReplacedData {
 public:
  // To be called before the models with these names in the folder are replaced. Leaves out models
  // that cannot be read, and models with a manifest, because it lists their files.
  ReplacedData(const std::filesystem::path& folder, std::span<const std::string> models);

  // To be called before the new models are put in place. Prepares a note for each file that no
  // tensor of the new models is in, and reserves room for it in `report`.
  void prepare(SaveReport& report);

  // To be called afterwards. Adds the notes about files that still exist and that were not left for
  // another model. Allocates nothing, because nothing may fail any more.
  void note(SaveReport& report) noexcept;

 private:
  struct OldFile {
    std::string location;
    std::string path;
    std::string note;  // empty: it belongs to a new model, too
  };
  std::vector<OldFile> files_;
};

// Notes in `report` each file that nodes of the model name (GraphFacts::side_files) and that is not
// in the folder.
void note_side_files(const Model& model, const std::filesystem::path& folder, SaveReport& report);

}  // namespace onnx_external
