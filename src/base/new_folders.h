// Folders that a path names and that do not exist yet: made, and removed again when the work in
// them fails.
#pragma once

#include <filesystem>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// Destroying it removes the folders that it made, where they are empty, unless keep() was called.
class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(NewFolders&& other) noexcept;
  NewFolders& operator=(NewFolders&& other) noexcept;
  ~NewFolders();

  // Makes every folder on `path` that is missing, mode 0777 & ~umask. After an error none is left.
  [[nodiscard]] static Result<NewFolders> make(const std::filesystem::path& path);

  // Waits until their names are on the disk.
  [[nodiscard]] Status sync() const;

  // Outermost first.
  [[nodiscard]] const std::vector<std::filesystem::path>& made() const { return made_; }

  void keep() { made_.clear(); }

 private:
  void remove();
  std::vector<std::filesystem::path> made_;
};

// kNotFound, with what to do, when a part of `path` is a symbolic link to nothing.
[[nodiscard]] Status check_no_dangling_link(const std::filesystem::path& path);

// The last folder on `path` that exists; "." when none does.
[[nodiscard]] std::filesystem::path nearest_existing_folder(std::filesystem::path path);

}  // namespace onnx_external
