#include "jobs/beside_model.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/safe_path.h"
#include "base/size_text.h"
#include "base/text.h"
#include "onnx/graph_facts.h"
#include "save/generations.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& folder, const std::string& file) {
  std::error_code ignored;
  return check_relative_location(file) && fs::exists(folder / file, ignored);
}

}  // namespace

ReplacedData::ReplacedData(const fs::path& folder, std::span<const std::string> models) {
  const auto out = Directory::open(folder);
  std::set<std::string> locations;
  for (const std::string& name : models) {
    std::error_code ignored;
    // The target of a link does not belong to the folder.
    if (!out || !fs::is_regular_file(fs::symlink_status(folder / name, ignored)) ||
        has_manifest(*out, {name, {}})) {
      continue;
    }
    if (const auto model = Model::load(folder / name)) {
      for (const ExternalTensor& tensor : model->external_tensors()) {
        locations.insert(tensor.location);
      }
    }
  }
  for (const std::string& location : locations) {
    if (is_there(folder, location)) {
      files_.push_back({location, (folder / location).string(), ""});
    }
  }
}

void ReplacedData::prepare(SaveReport& report) {
  std::set<std::string_view> used;
  for (const SavedModel& model : report.models) {
    for (const SavedTensor& tensor : model.tensors) {
      used.insert(tensor.file);
    }
  }
  for (OldFile& file : files_) {
    std::error_code ignored;
    if (!used.contains(file.location)) {
      file.note = quote(file.location) + " (" + size_text(fs::file_size(file.path, ignored)) +
                  ") held data of the replaced model and stays, because another tool wrote it; if "
                  "no other model needs it: rm " +
                  quote(file.path);
    }
  }
  report.notes.reserve(report.notes.size() + files_.size());
}

void ReplacedData::note(SaveReport& report) noexcept {
  for (OldFile& file : files_) {
    const bool is_left = std::any_of(report.data_left_for.begin(), report.data_left_for.end(),
                                     [&](const auto& left) { return left.first == file.location; });
    if (!file.note.empty() && !is_left && ::access(file.path.c_str(), F_OK) == 0) {
      report.notes.push_back(std::move(file.note));
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
