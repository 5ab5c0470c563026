#include "base/new_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/file.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {

NewFolders::~NewFolders() {
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    (void)::rmdir(folder->c_str());  // fails if someone else uses it
  }
}

Result<NewFolders> NewFolders::make(const std::filesystem::path& path) {
  constexpr mode_t kMode = 0777;
  NewFolders folders;
  std::filesystem::path folder;
  for (const std::filesystem::path& part : path) {
    folder /= part;
    if (::mkdir(folder.c_str(), kMode) == 0) {
      folders.made_.push_back(folder);
      continue;
    }
    const int error_number = errno;
    if (std::error_code ignored; std::filesystem::is_directory(folder, ignored)) {
      continue;
    }
    if (error_number != EEXIST) {
      Error error = errno_error(error_number, folder.string() + ": cannot create the folder");
      const bool may_not = error_number == EACCES || error_number == EROFS;
      error.message += may_not ? "; choose a folder that this user can write to" : "";
      return fail(std::move(error));
    }
    TRY(check_no_dangling_link(folder));
    return fail(ErrorCode::kAlreadyExists,
                folder.string() + ": is not a folder; choose another output folder");
  }
  return folders;
}

Status check_no_dangling_link(const std::filesystem::path& path) {
  std::filesystem::path folder;
  for (const std::filesystem::path& part : path) {
    folder /= part;
    std::error_code ignored;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(folder, ignored)) &&
        !std::filesystem::exists(folder, ignored)) {
      const std::filesystem::path target = std::filesystem::read_symlink(folder, ignored);
      return fail(ErrorCode::kNotFound,
                  folder.string() + ": is a symbolic link to " + quote(target.string()) +
                      ", which does not exist; create the target, or remove the link");
    }
  }
  return {};
}

Status NewFolders::sync() const {
  for (const std::filesystem::path& made : made_) {
    const auto parent = Directory::open(made.parent_path());
    TRY(parent ? parent->sync() : Status());  // a folder that this user may not read is not synced
  }
  return {};
}

std::filesystem::path nearest_existing_folder(std::filesystem::path path) {
  std::error_code ignored;
  while (!path.empty() && !std::filesystem::is_directory(path, ignored)) {
    path = path.parent_path();
  }
  return path.empty() ? std::filesystem::path(".") : path;
}

}  // namespace onnx_external
