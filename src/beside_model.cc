#include "beside_model.h"

#include <string_view>
#include <system_error>

#include "base/safe_path.h"
#include "base/size_text.h"
#include "base/text.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& folder, const std::string& file) {
  std::error_code ignored;
  return check_relative_location(file) && fs::exists(folder / file, ignored);
}

}  // namespace

std::set<std::string> data_files_of(const fs::path& folder, std::span<const std::string> models) {
  std::set<std::string> files;
  for (const std::string& name : models) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / name, ignored)) {
      continue;
    }
    if (const auto model = Model::load(folder / name)) {
      for (const ExternalTensor& tensor : model->external_tensors()) {
        files.insert(tensor.location);
      }
    }
  }
  return files;
}

void note_left_data(const fs::path& folder, const std::set<std::string>& old,
                    std::span<const SaveReport> saved, SaveReport& report) {
  std::set<std::string_view> known;
  for (const SaveReport& model : saved) {
    for (const SavedTensor& tensor : model.tensors) {
      known.insert(tensor.file);
    }
  }
  for (const auto& [file, model] : report.data_left_for) {
    known.insert(file);
  }
  for (const std::string& file : old) {
    if (known.contains(file) || !is_there(folder, file)) {
      continue;
    }
    std::error_code ignored;
    report.notes.push_back(quote(file) + " (" + size_text(fs::file_size(folder / file, ignored)) +
                           ") held data of the replaced model and stays, because another tool "
                           "wrote it; if no other model needs it: rm " +
                           quote((folder / file).string()));
  }
}

void note_side_files(const Model& model, const fs::path& folder, SaveReport& report) {
  for (const std::string& file : model.facts().side_files) {
    if (folder.empty() || !is_there(folder, file)) {
      report.notes.push_back("the model's EPContext nodes need the file " + quote(file) +
                             " beside it, which a save does not copy: cp " +
                             quote((model.source_dir() / file).string()) + " " +
                             quote(folder.empty() ? "OUT_DIR" : folder.string()));
    }
  }
}

}  // namespace onnx_external
