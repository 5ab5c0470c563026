// What a save says of files beside a model that are not its own data.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// Data files of replaced models that stay because nobody knows whose they are: another tool wrote
// them.
class ReplacedData {
 public:
  // Before the models that have these names in the folder are replaced. Left out are models that
  // cannot be read, and those that have a manifest: it knows whose their files are.
  ReplacedData(const std::filesystem::path& folder, std::span<const std::string> models);

  // Before the new models are put in place: makes a note of each file that no tensor of the new
  // models is in, and room for it in `report`.
  void prepare(SaveReport& report);

  // After that: adds the notes of files that are still there and that were not left for another
  // model. Takes no memory, because nothing may fail any more.
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
