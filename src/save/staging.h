// The folder in which a save writes everything before any of it is published.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/output_file.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/transaction_options.h"

namespace onnx_external {

// Published folders get their mode from the umask.
inline constexpr mode_t kPublishedFolderMode = 0777;
inline constexpr mode_t kStagingMode = 0700;

[[nodiscard]] Status remove_all_but(const Directory& folder, const EntryNames& spared);

// Creates a file with room for `bytes`.
[[nodiscard]] Result<OutputFile> create_file(const Directory& folder, const std::string& name,
                                             std::uint64_t bytes);

// Both wait for the disk only with Sync::kFiles.
[[nodiscard]] Status write_file(const Directory& folder, const std::string& name,
                                std::string_view content, Sync sync);
[[nodiscard]] Status sync_folder(const Directory& folder, Sync sync);

class Staging {
 public:
  // Makes a new folder in `out`. After an error name() tells what must be removed.
  [[nodiscard]] Status make(const Directory& out, const TransactionOptions& options);

  // Takes over the folder of a killed save of the same job. Its journal and the files of the job
  // stay and are checked later; everything else is removed.
  [[nodiscard]] Status take_over(const Directory& out, const std::string& name,
                                 const TransactionOptions& options);

  // Empty until the folder exists.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool is_taken_over() const { return taken_over_; }

  // Requires: make() or take_over() succeeded.
  [[nodiscard]] const Directory& folder() const { return *folder_; }
  [[nodiscard]] const Directory& data() const { return *data_; }

 private:
  [[nodiscard]] Status clear(const TransactionOptions& options) const;
  [[nodiscard]] Status open_data(const Directory& out, const TransactionOptions& options);

  std::string name_;
  bool taken_over_ = false;
  std::optional<Directory> folder_;
  std::optional<Directory> data_;
};

}  // namespace onnx_external
