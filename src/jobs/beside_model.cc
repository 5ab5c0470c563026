#include "jobs/beside_model.h"

#include <algorithm>
#include <system_error>

#include "base/safe_path.h"
#include "base/size_text.h"
#include "base/text.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& folder, const std::string& file) {
  std::error_code ignored;
  return check_relative_location(file) && fs::exists(folder / file, ignored);
}

}  // namespace

void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report) {
  for (const std::string& file : files) {
    std::error_code ignored;
    const fs::path path = report.folder / file;
    const bool is_left = std::any_of(report.data_left_for.begin(), report.data_left_for.end(),
                                     [&](const auto& left) { return left.first == file; });
    if (!is_left) {
      report.notes.push_back(quote(file) + " (" + size_text(fs::file_size(path, ignored)) +
                             ") held data of the replaced model and stays, because another tool "
                             "wrote it; if no other model needs it: rm " +
                             quote(path.string()));
    }
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
