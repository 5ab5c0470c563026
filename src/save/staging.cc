#include "save/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/manifest.h"
#include "save/output_names.h"
#include "save/record.h"

namespace onnx_external {

bool has_manifest_in_folder(const TransactionOptions& options) {
  return options.layout == Layout::kPerTensor && options.is_of_one();
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
  for (const std::string& model : options.models) {
    entries.push_back(manifest_name(options, model));
  }
  if (options.layout == Layout::kPerTensor) {
    if (!options.files.empty()) {
      entries.push_back(options.data_dir);
    }
    return entries;
  }
  for (const PlannedFile& file : options.files) {
    if (file.name != options.models.front()) {  // its rename is the commit
      entries.push_back(file.name);
    }
  }
  return entries;
}

Status remove_all_but(const Directory& folder, const EntryNames& spared) {
  TRY_ASSIGN(const auto entries, folder.entries());
  for (const std::string& entry : entries) {
    TRY(spared.contains(entry) ? Status() : folder.remove_tree(entry));
  }
  return {};
}

Result<OutputFile> create_file(const Directory& folder, const std::string& name,
                               std::uint64_t bytes) {
  TRY_ASSIGN(auto file, OutputFile::create(folder, name));
  TRY(file.preallocate(bytes));
  return file;
}

Status write_file(const Directory& folder, const std::string& name, std::string_view content,
                  Sync sync) {
  TRY_ASSIGN(auto file, create_file(folder, name, content.size()));
  TRY(file.write(0, std::as_bytes(std::span(content))));
  TRY(sync == Sync::kFiles ? file.sync() : Status());
  return file.close();
}

Status sync_folder(const Directory& folder, Sync sync) {
  return sync == Sync::kFiles ? folder.sync() : Status();
}

Status Staging::take_over(const Directory& out, const std::string& name,
                          const TransactionOptions& options) {
  TRY_ASSIGN(auto folder, out.open_folder(name));
  name_ = name;
  folder_ = std::move(folder);
  taken_over_ = true;
  TRY(clear(options));
  return open_data(out, options);
}

Status Staging::clear(const TransactionOptions& options) const {
  const bool has_folder = options.layout == Layout::kPerTensor;
  EntryNames files;
  for (const PlannedFile& file : options.files) {
    files.insert(file.name);
  }
  EntryNames top = has_folder ? EntryNames{options.data_dir} : files;
  top.emplace(kRecordName);
  TRY(remove_all_but(*folder_, top));
  if (!has_folder) {
    return {};
  }
  const auto data = folder_->open_folder(options.data_dir);
  return data ? remove_all_but(*data, files) : Status();
}

Status Staging::make(const Directory& out, const TransactionOptions& options) {
  TRY_ASSIGN(auto name, random_staging_name());
  if (Status made = out.make_folder(name, kStagingMode); !made) {
    if (::faccessat(out.fd(), ".", W_OK | X_OK, AT_EACCESS) == 0) {
      return made;
    }
    Error error = errno_error(errno, out.path().string() + ": cannot write into the folder");
    error.message += "; change its permissions, or choose another folder";
    return fail(std::move(error));
  }
  name_ = std::move(name);
  TRY_ASSIGN(folder_, out.open_folder(name_));
  return open_data(out, options);
}

// Makes the data folder where it is missing.
Status Staging::open_data(const Directory& out, const TransactionOptions& options) {
  const bool has_folder = options.layout == Layout::kPerTensor;
  if (has_folder) {
    Status made = folder_->make_folder(options.data_dir, kPublishedFolderMode);
    if (!made && made.error().code != ErrorCode::kAlreadyExists) {
      return made;
    }
  }
  TRY_ASSIGN(data_, has_folder ? folder_->open_folder(options.data_dir) : out.open_folder(name_));
  return {};
}

}  // namespace onnx_external
