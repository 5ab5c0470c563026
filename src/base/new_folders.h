// Creates the missing folders of a path, and removes them again if the operation that needed them
// fails.
#pragma once

#include <filesystem>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// The created folders. Unless keep() was called, the destructor removes those that are empty.
class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(NewFolders&& other) noexcept = default;  // a moved-from vector is empty
  NewFolders& operator=(NewFolders other) noexcept {
    made_.swap(other.made_);
    return *this;
  }
  ~NewFolders();

  // Creates every missing folder of `path` with mode 0777 & ~umask. If this fails, the folders that
  // were created are removed.
  [[nodiscard]] static Result<NewFolders> make(const std::filesystem::path& path);

  // Waits until the names of the created folders are on the disk.
  [[nodiscard]] Status sync() const;

  // Returns the created folders, outermost first.
  [[nodiscard]] const std::vector<std::filesystem::path>& made() const { return made_; }

  void keep() { made_.clear(); }

 private:
  std::vector<std::filesystem::path> made_;
};

// Fails with kNotFound and a remedy if a part of `path` is a dangling symbolic link.
[[nodiscard]] Status check_no_dangling_link(const std::filesystem::path& path);

// Returns the innermost folder of `path` that exists; "." if none exists.
[[nodiscard]] std::filesystem::path nearest_existing_folder(std::filesystem::path path);

}  // namespace onnx_external
