#include "save/other_models.h"

#include <filesystem>
#include <string_view>

#include "base/text.h"
#include "onnx/load.h"
#include "onnx/tensor_list.h"

namespace onnx_external {
namespace {

// False when the model cannot be read.
bool add_files_of(const Directory& folder, const std::string& model, FilesInUse& files) {
  const auto loaded = load_model_file(folder.path() / model);
  if (!loaded) {
    return loaded.error().code != ErrorCode::kIo;
  }
  const auto tensors = list_tensors(*loaded->proto);
  for (std::size_t i = 0; tensors && i < tensors->size(); ++i) {
    const onnx::TensorProto& tensor = *(*tensors)[i].proto;
    for (int entry = 0; is_external(tensor) && entry < tensor.external_data_size(); ++entry) {
      const auto& pair = tensor.external_data(entry);
      if (pair.key() == "location") {
        const std::filesystem::path location = pair.value();
        files.emplace(location.lexically_normal().generic_string(), model);
      }
    }
  }
  return tensors.has_value();
}

}  // namespace

std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                const std::string& model_name) {
  constexpr std::string_view kSuffix = ".onnx";
  const auto entries = folder.entries();
  if (!entries) {
    return std::nullopt;
  }
  FilesInUse files;
  std::size_t models = 0;
  for (const std::string& entry : *entries) {
    if (entry == model_name || !ascii_lower(entry).ends_with(kSuffix)) {
      continue;
    }
    if (++models > kMaxOtherModels || !add_files_of(folder, entry, files)) {
      return std::nullopt;
    }
  }
  return files;
}

}  // namespace onnx_external
