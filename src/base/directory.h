// Opens folders and works with their entries. Entries are accessed by plain name relative to an
// open descriptor. If another program renames a parent folder or creates a link meanwhile, this
// cannot redirect an access to another folder.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class EntryKind { kFile, kFolder, kOther };  // kOther: symbolic link, FIFO, device ...

// An open folder. Const members may be called from any thread. Each `name` argument must be a plain
// name (base/safe_path.h). If it is a symbolic link, the link is not followed.
class Directory {
 public:
  // Opens a folder. Symbolic links in `path` are followed, because the user chose this path. An
  // empty path means the current folder.
  [[nodiscard]] static Result<Directory> open(const std::filesystem::path& path);
  Directory(Directory&& other) noexcept = default;
  Directory& operator=(Directory&& other) noexcept {
    lock_ = std::move(other.lock_);  // first, because the folder must still be open
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    return *this;
  }
  ~Directory() = default;

  [[nodiscard]] Result<Directory> open_folder(const std::string& name) const;

  // Creates the folder with mode `mode` & ~umask. Fails with kAlreadyExists if an entry of this
  // name exists.
  [[nodiscard]] Status make_folder(const std::string& name, mode_t mode) const;

  // Returns nullopt if there is no such entry.
  [[nodiscard]] Result<std::optional<EntryKind>> kind_of(const std::string& name) const;

  // Returns the names of all entries except "." and "..", sorted.
  [[nodiscard]] Result<std::vector<std::string>> entries() const;

  // Fails with kNotFound if the file does not exist.
  [[nodiscard]] Status remove_file(const std::string& name) const;
  [[nodiscard]] Status remove_empty_folder(const std::string& name) const;

  // Removes a file or a folder with its contents, down to kMaxTreeDepth levels of folders.
  // Continues after an error and returns the first one. Succeeds if `name` does not exist.
  [[nodiscard]] Status remove_tree(const std::string& name) const;

  // Removes all entries, like remove_tree(), except those in `spared`. Stops at the first error.
  [[nodiscard]] Status remove_all_but(const std::set<std::string>& spared) const;

  // Waits until the names in this folder are on the disk.
  [[nodiscard]] Status sync() const;

  // Waits until everything written to this file system is on the disk, including what other
  // programs wrote. Reports write errors that occurred in any file, even a closed one, since
  // the folder was opened. Requires: syncs_report_errors().
  [[nodiscard]] Status sync_file_system() const;

  // Tries to take an exclusive lock on the folder without waiting. The lock is released when this
  // object is destroyed or the process ends. Returns false if another object or process holds the
  // lock, and nullopt if the file system does not support locks.
  [[nodiscard]] std::optional<bool> try_lock() const;
  // Returns whether the folder was removed after it was opened.
  [[nodiscard]] bool is_removed() const;
  // Returns whether another object or process holds the lock that try_lock() takes.
  [[nodiscard]] bool is_locked() const;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Returns "folder/name", for messages.
  [[nodiscard]] std::string child(const std::string& name) const;

 private:
  Directory(UniqueFd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}

  // The lock belongs to the open file description, which a forked child shares. Because closing the
  // file would not release it, the destructor releases it explicitly.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}
    Lock& operator=(Lock other) noexcept {
      std::swap(fd_, other.fd_);
      std::swap(process_, other.process_);
      return *this;
    }
    ~Lock();
    void hold(int fd);

   private:
    int fd_ = -1;
    pid_t process_ = 0;
  };

  UniqueFd fd_;
  std::filesystem::path path_;  // for messages
  mutable Lock lock_;
};

inline constexpr int kMaxTreeDepth = 8;

// Returns whether syncfs() reports data that could not be written, as it does since Linux 5.8 (see
// syncfs(2)).
[[nodiscard]] bool syncs_report_errors();

enum class Replace { kNo, kYes };

// Renames an entry. Fails with kAlreadyExists if `to` exists and `replace` is kNo; the check is
// atomic, except on file systems without RENAME_NOREPLACE.
[[nodiscard]] Status rename_entry(const Directory& from_folder, const std::string& from,
                                  const Directory& to_folder, const std::string& to,
                                  Replace replace);

// Renames an entry to a free name, as rename_entry() does. If the file system cannot rename a
// folder (gcsfuse: folders with files; overlayfs: folders in a lower layer), a new folder is
// created and the entries are moved into it one by one. If the process is killed during these
// moves, or if entries cannot be moved back after an error, each of the two folders contains a part
// of the entries.
[[nodiscard]] Status move_entry(const Directory& from_folder, const std::string& from,
                                const Directory& to_folder, const std::string& to);

}  // namespace onnx_external
