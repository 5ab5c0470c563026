#include "save/transaction_options.h"

#include "save/file_names.h"
#include "save/manifest.h"

namespace onnx_external {

bool has_manifest_in_folder(const TransactionOptions& options) {
  return options.layout == Layout::kPerTensor && !options.reuses_files;
}

std::string manifest_name(const TransactionOptions& options) {
  return has_manifest_in_folder(options)
             ? std::string(kManifestName)
             : manifest_file_name(numbered_stem(options.model_name, options.data_dir));
}

std::string manifest_location(const TransactionOptions& options) {
  return has_manifest_in_folder(options) ? options.data_dir + "/" + manifest_name(options)
                                         : manifest_name(options);
}

std::vector<std::string> data_entries(const TransactionOptions& options) {
  if (has_manifest_in_folder(options)) {
    return {options.data_dir};
  }
  std::vector<std::string> entries{manifest_name(options)};
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

GenerationNames generation_names(const TransactionOptions& options) {
  return {options.model_name, std::string(generation_base(options.data_dir))};
}

}  // namespace onnx_external
