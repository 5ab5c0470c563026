#include "base/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr mode_t kPermissions = 07777;

Status remove_tree_in(const Directory& folder, const std::string& name, int depth) {
  if (::unlinkat(folder.fd(), name.c_str(), 0) == 0 || errno == ENOENT) {
    return {};
  }
  // Linux says EISDIR for a folder, POSIX EPERM.
  if (errno != EISDIR && errno != EPERM) {
    return fail(errno_error(errno, folder.child(name) + ": cannot remove"));
  }
  if (depth == 0) {
    return fail(ErrorCode::kUnsupported, folder.child(name) + ": nested too deep to remove");
  }
  TRY_ASSIGN(auto tree, folder.open_folder(name));
  TRY_ASSIGN(auto names, tree.entries());
  Status first_error;
  for (const std::string& entry : names) {
    if (Status status = remove_tree_in(tree, entry, depth - 1); !status && first_error) {
      first_error = std::move(status);
    }
  }
  if (!first_error) {
    return first_error;
  }
  return folder.remove_empty_folder(name);
}

// File systems and containers that lack the flag or the call report this with various errors.
int rename_without_replacing(const Directory& from_folder, const std::string& from,
                             const Directory& to_folder, const std::string& to) {
  const int result =
      ::renameat2(from_folder.fd(), from.c_str(), to_folder.fd(), to.c_str(), RENAME_NOREPLACE);
  if (result == 0 || errno == EEXIST) {
    return result;
  }
  struct stat info {};
  if (::fstatat(to_folder.fd(), to.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
  }
  return errno == ENOENT ? ::renameat(from_folder.fd(), from.c_str(), to_folder.fd(), to.c_str())
                         : -1;
}

Error rename_error(int error_number, const std::string& name) {
  const bool has_fix = error_number == ENOSPC || error_number == EDQUOT || error_number == ENOMEM;
  if (has_fix || error_number == EEXIST || error_number == ENOENT) {
    return errno_error(error_number, name + ": cannot rename to this name");
  }
  return Error{
      ErrorCode::kIo,
      name + ": cannot rename to this name: " + std::strerror(error_number) +
          "; if this file system cannot rename files, choose a folder on another file system"};
}

// Moves the entries of a folder into a new one. After an error, all entries are moved back, if that
// is possible.
Status move_entries(const Directory& from_folder, const std::string& from,
                    const Directory& to_folder, const std::string& to) {
  TRY_ASSIGN(const auto source, from_folder.open_folder(from));
  TRY_ASSIGN(const auto names, source.entries());
  struct stat info {};
  const bool known = ::fstat(source.fd(), &info) == 0;
  TRY(to_folder.make_folder(to, known ? info.st_mode & kPermissions : 0777));
  const auto target = to_folder.open_folder(to);
  Status status = target ? Status() : fail(target.error());
  std::size_t moved = 0;
  while (status && moved < names.size()) {
    status = rename_entry(source, names[moved], *target, names[moved], Replace::kNo);
    moved += status ? 1 : 0;
  }
  if (status) {
    (void)target->sync();  // the caller syncs the parent folder
    status = from_folder.remove_empty_folder(from);
  }
  if (!status) {
    while (moved-- > 0) {
      (void)rename_entry(*target, names[moved], source, names[moved], Replace::kNo);
    }
    (void)to_folder.remove_empty_folder(to);
  }
  return status;
}

}  // namespace

Result<Directory> Directory::open(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.empty() ? std::filesystem::path(".") : path;
  UniqueFd fd(::open(folder.c_str(), kFolderFlags));
  if (!fd) {
    return fail(errno_error(errno, folder.string() + ": cannot open the folder"));
  }
  return Directory(std::move(fd), folder);
}

Result<Directory> Directory::open_folder(const std::string& name) const {
  UniqueFd child_fd(::openat(fd(), name.c_str(), kFolderFlags | O_NOFOLLOW));
  if (!child_fd) {
    return fail(errno_error(errno, child(name) + ": cannot open the folder"));
  }
  return Directory(std::move(child_fd), path_ / name);
}

Status Directory::make_folder(const std::string& name, mode_t mode) const {
  if (::mkdirat(fd(), name.c_str(), mode) != 0) {
    return fail(errno_error(errno, child(name) + ": cannot create the folder"));
  }
  return {};
}

Result<std::optional<EntryKind>> Directory::kind_of(const std::string& name) const {
  struct stat info {};
  if (::fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) {
      return std::optional<EntryKind>();
    }
    return fail(errno_error(errno, child(name) + ": cannot examine"));
  }
  if (S_ISREG(info.st_mode)) {
    return std::optional(EntryKind::kFile);
  }
  return std::optional(S_ISDIR(info.st_mode) ? EntryKind::kFolder : EntryKind::kOther);
}

Result<std::vector<std::string>> Directory::entries() const {
  // A second open file, because reading moves the position, which duplicated descriptors share.
  UniqueFd listing_fd(::openat(fd(), ".", kFolderFlags));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(
      listing_fd ? ::fdopendir(listing_fd.get()) : nullptr, &::closedir);
  if (!listing) {
    return fail(errno_error(errno, path_.string() + ": cannot list the folder"));
  }
  (void)listing_fd.release();  // closedir closes it
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
    errno = 0;
  }
  if (errno != 0) {
    return fail(errno_error(errno, path_.string() + ": cannot list the folder"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status Directory::remove_file(const std::string& name) const {
  if (::unlinkat(fd(), name.c_str(), 0) != 0) {
    return fail(errno_error(errno, child(name) + ": cannot remove"));
  }
  return {};
}

Status Directory::remove_empty_folder(const std::string& name) const {
  if (::unlinkat(fd(), name.c_str(), AT_REMOVEDIR) != 0) {
    return fail(errno_error(errno, child(name) + ": cannot remove the folder"));
  }
  return {};
}

Status Directory::remove_tree(const std::string& name) const {
  return remove_tree_in(*this, name, kMaxTreeDepth);
}

Status Directory::remove_all_but(const std::set<std::string>& spared) const {
  TRY_ASSIGN(const auto found, entries());
  for (const std::string& entry : found) {
    TRY(spared.contains(entry) ? Status() : remove_tree(entry));
  }
  return {};
}

Status Directory::sync_file_system() const {
  if (uninterrupted([&] { return ::syncfs(fd()); }) != 0) {
    return fail(sync_error(errno, path_.string() + ": cannot write the files to the disk"));
  }
  return {};
}

bool syncs_report_errors() {
  if (::syscall(SYS_syncfs, -1) == 0 || errno != EBADF) {
    return false;  // a container without this call
  }
  constexpr std::pair kFirst{5, 8};
  struct utsname kernel {};
  if (::uname(&kernel) != 0) {
    return false;
  }
  const std::string_view release = kernel.release;  // "6.1.0-13-amd64"
  const char* const end = release.data() + release.size();
  std::pair version{0, 0};
  const auto major = std::from_chars(release.data(), end, version.first);
  if (major.ec != std::errc() || major.ptr == end) {
    return false;
  }
  const auto minor = std::from_chars(major.ptr + 1, end, version.second);
  return minor.ec == std::errc() && version >= kFirst;
}

Status Directory::sync() const {
  const int result = uninterrupted([&] { return ::fsync(fd()); });
  // Other errors come from file systems (for example some network file systems) that cannot sync
  // folders.
  if (result != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    return fail(sync_error(errno, path_.string() + ": cannot write the folder to the disk"));
  }
  return {};
}

std::optional<bool> Directory::try_lock() const {
  if (::flock(fd(), LOCK_EX | LOCK_NB) == 0) {
    lock_.hold(fd());
    return true;
  }
  return errno == EWOULDBLOCK ? std::optional(false) : std::nullopt;
}

bool Directory::is_removed() const {
  struct stat info {};
  return ::fstat(fd(), &info) == 0 && info.st_nlink == 0;
}

void Directory::Lock::hold(int fd) {
  fd_ = fd;
  process_ = ::getpid();
}

Directory::Lock::~Lock() {
  if (fd_ >= 0 && process_ == ::getpid()) {
    (void)::flock(fd_, LOCK_UN);
  }
}

bool Directory::is_locked() const {
  if (::flock(fd(), LOCK_SH | LOCK_NB) == 0) {
    (void)::flock(fd(), LOCK_UN);
    return false;
  }
  return errno == EWOULDBLOCK;
}

std::string Directory::child(const std::string& name) const {
  const std::string& folder = path_.native();
  std::string text;
  text.reserve(folder.size() + 1 + name.size());
  text.append(folder).append(folder.ends_with('/') ? "" : "/").append(name);
  return text;
}

Status rename_entry(const Directory& from_folder, const std::string& from,
                    const Directory& to_folder, const std::string& to, Replace replace) {
  const int result = replace == Replace::kYes
                         ? ::renameat(from_folder.fd(), from.c_str(), to_folder.fd(), to.c_str())
                         : rename_without_replacing(from_folder, from, to_folder, to);
  return result == 0 ? Status() : fail(rename_error(errno, to_folder.child(to)));
}

Status move_entry(const Directory& from_folder, const std::string& from, const Directory& to_folder,
                  const std::string& to) {
  Status renamed = rename_entry(from_folder, from, to_folder, to, Replace::kNo);
  if (renamed || renamed.error().code != ErrorCode::kIo) {
    return renamed;
  }
  const auto kind = from_folder.kind_of(from);
  return kind && *kind == EntryKind::kFolder ? move_entries(from_folder, from, to_folder, to)
                                             : renamed;
}

}  // namespace onnx_external
