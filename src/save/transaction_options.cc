#include "save/transaction_options.h"

#include <utility>

#include "save/file_names.h"
#include "save/manifest.h"

namespace onnx_external {

std::vector<std::string> model_names(const TransactionOptions& options) {
  return options.set.empty() ? std::vector<std::string>{options.model_name} : options.set;
}

bool has_manifest_in_folder(const TransactionOptions& options) {
  return options.layout == Layout::kPerTensor && options.set.empty();
}

std::string manifest_name(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options)
             ? std::string(kManifestName)
             : manifest_file_name(numbered_stem(model, options.data_dir));
}

std::string manifest_location(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options) ? options.data_dir + "/" + manifest_name(options, model)
                                         : manifest_name(options, model);
}

std::string manifest_entry(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options) ? options.data_dir : manifest_name(options, model);
}

std::vector<std::string> data_entries(const TransactionOptions& options) {
  if (has_manifest_in_folder(options)) {
    return {options.data_dir};
  }
  std::vector<std::string> entries;
  for (const std::string& model : model_names(options)) {
    entries.push_back(manifest_name(options, model));
  }
  if (options.layout == Layout::kPerTensor) {
    if (!options.files.empty()) {
      entries.push_back(options.data_dir);
    }
    return entries;
  }
  for (const PlannedFile& file : options.files) {
    if (file.name != options.model_name) {  // its rename is the commit
      entries.push_back(file.name);
    }
  }
  return entries;
}

std::vector<GenerationNames> generation_names(const TransactionOptions& options) {
  std::vector<GenerationNames> names;
  for (std::string& model : model_names(options)) {
    names.push_back(
        {std::move(model), std::string(generation_base(options.data_dir)), options.data_name});
  }
  return names;
}

}  // namespace onnx_external
