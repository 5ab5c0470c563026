#include "save/other_models.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "onnx/load.h"
#include "onnx/tensor_list.h"

namespace onnx_external {

std::optional<FileSet> files_of_model(const Directory& folder, const std::string& model_name) {
  FileSet files;
  const auto loaded = load_model_file(folder.path() / model_name);
  if (!loaded) {
    return loaded.error().code == ErrorCode::kIo ? std::nullopt : std::optional(std::move(files));
  }
  const auto tensors = list_tensors(*loaded->proto);
  for (std::size_t i = 0; tensors && i < tensors->size(); ++i) {
    const onnx::TensorProto& tensor = *(*tensors)[i].proto;
    for (int entry = 0; is_external(tensor) && entry < tensor.external_data_size(); ++entry) {
      const auto& pair = tensor.external_data(entry);
      if (pair.key() == "location") {
        const std::filesystem::path location = pair.value();
        files.insert(location.lexically_normal().generic_string());
      }
    }
  }
  return tensors ? std::optional(std::move(files)) : std::nullopt;
}

std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                std::span<const std::string> models) {
  constexpr std::string_view kSuffix = ".onnx";
  const auto entries = folder.entries();
  if (!entries) {
    return std::nullopt;
  }
  FilesInUse files;
  std::size_t others = 0;
  for (const std::string& entry : *entries) {
    if (!ascii_lower(entry).ends_with(kSuffix) ||
        std::find(models.begin(), models.end(), entry) != models.end()) {
      continue;
    }
    const auto of_entry = ++others > kMaxOtherModels ? std::nullopt : files_of_model(folder, entry);
    if (!of_entry) {
      return std::nullopt;
    }
    for (const std::string& file : *of_entry) {
      files.emplace(file, entry);
    }
  }
  return files;
}

}  // namespace onnx_external
