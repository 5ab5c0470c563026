// Folders held open: everything in them is reached by plain name relative to the descriptor, so
// that nobody can redirect the work by renaming a parent or planting a link.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class EntryKind { kFile, kFolder, kOther };  // kOther: symbolic link, FIFO, device ...

// An open folder. Const members may be called from any thread. `name` arguments are plain names
// (base/safe_path.h); none of the members follows a symbolic link in them.
class Directory {
 public:
  // Follows links in `path`, as it is the user's own; an empty path is the current folder.
  [[nodiscard]] static Result<Directory> open(const std::filesystem::path& path);

  [[nodiscard]] Result<Directory> open_folder(const std::string& name) const;

  // Mode `mode` & ~umask. kAlreadyExists.
  [[nodiscard]] Status make_folder(const std::string& name, mode_t mode) const;

  // Nothing when there is no such entry.
  [[nodiscard]] Result<std::optional<EntryKind>> kind_of(const std::string& name) const;

  // Names of all entries but "." and "..", sorted.
  [[nodiscard]] Result<std::vector<std::string>> entries() const;

  // kNotFound when there is none.
  [[nodiscard]] Status remove_file(const std::string& name) const;
  [[nodiscard]] Status remove_empty_folder(const std::string& name) const;

  // Removes whatever stands under `name`, to the depth of kMaxTreeDepth folders; goes on after an
  // error and returns the first. Succeeds when there is nothing.
  [[nodiscard]] Status remove_tree(const std::string& name) const;

  // Waits until the names in this folder are on the disk.
  [[nodiscard]] Status sync() const;

  // Waits until all that was written to this file system since the folder was opened is on the
  // disk, other programs' files too. The error of any of our files shows here, even of a closed
  // one. Requires: syncs_report_errors().
  [[nodiscard]] Status sync_file_system() const;

  // Takes an exclusive lock that ends with this object (or the process), without waiting. False:
  // someone else holds it. Nothing: the file system has no locks.
  [[nodiscard]] std::optional<bool> try_lock() const;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // "folder/name", for messages.
  [[nodiscard]] std::string child(const std::string& name) const;

 private:
  Directory(UniqueFd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::filesystem::path path_;  // for messages
};

inline constexpr int kMaxTreeDepth = 8;

// Whether syncfs() tells of data that could not be written: Linux 5.8 and later (syncfs(2)).
[[nodiscard]] bool syncs_report_errors();

enum class Replace { kNo, kYes };

// Renames an entry. kAlreadyExists when `to` exists and `replace` is kNo (atomically, except on
// file systems without RENAME_NOREPLACE).
[[nodiscard]] Status rename_entry(const Directory& from_folder, const std::string& from,
                                  const Directory& to_folder, const std::string& to,
                                  Replace replace);

// Lets two existing entries change places atomically. kNotFound where one is missing; kUnsupported
// where the file system cannot.
[[nodiscard]] Status exchange_entries(const Directory& a_folder, const std::string& a,
                                      const Directory& b_folder, const std::string& b);

}  // namespace onnx_external
