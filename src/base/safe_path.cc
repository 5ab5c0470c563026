#include "base/safe_path.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/foreign_format.h"
#include "base/holes.h"
#include "base/hub_link.h"
#include "base/similar_files.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxNameBytes = 255;  // NAME_MAX of every common file system
constexpr std::size_t kMaxLocationBytes = 4096;

tl::unexpected<Error> bad(std::string_view name, const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, quote(name) + ": " + why);
}

tl::unexpected<Error> bad_length(std::string_view location) {
  return bad(location, "a location must have 1 to " + std::to_string(kMaxLocationBytes) + " bytes");
}

tl::unexpected<Error> absolute(std::string_view location) {
  return bad(location, "an absolute path; a location must be relative to the model's folder");
}

// If a link is in the place of a folder, the error is ENOTDIR; the error of openat2 shows that it
// is a link.
int errno_of_folder(int parent, const char* name, int error_number) {
  struct stat found {};
  const bool is_link = error_number == ENOTDIR &&
                       ::fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISLNK(found.st_mode);
  return is_link ? ELOOP : error_number;
}

// Opens one component after the other without following links. openat2 does this in one call, but
// kernels before 5.6 lack it and some sandboxes hide it.
int open_by_steps(int folder, std::string_view location) {
  UniqueFd current(::dup(folder));
  for (std::size_t start = 0;;) {
    const std::size_t slash = location.find('/', start);
    const std::string name(location.substr(start, slash - start));
    const bool last = slash == std::string_view::npos;
    const int kind = last ? O_NONBLOCK : O_DIRECTORY;
    const int fd = ::openat(current.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | kind);
    if (fd < 0) {
      errno = errno_of_folder(current.get(), name.c_str(), errno);
    }
    if (fd < 0 || last) {
      return fd;
    }
    current = UniqueFd(fd);
    start = slash + 1;
  }
}

int open_in(int folder, std::string_view location) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const std::string path(location);
  const long fd = ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how));
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    return open_by_steps(folder, location);
  }
  return static_cast<int>(fd);
}

Error open_error(int error_number, const std::filesystem::path& path) {
  if (error_number == ELOOP || error_number == EXDEV) {
    return {ErrorCode::kInvalidArgument, path.string() + ": is or passes through a symbolic link"};
  }
  return errno_error(error_number, path.string() + ": cannot open");
}

// Opens a location whose last component may be a link of the Hub's cache.
Result<UniqueFd> open_linked(const Directory& folder, const std::string& location) {
  const std::size_t slash = location.rfind('/');
  if (slash == std::string::npos) {
    return open_hub_link(folder.fd(), folder.path(), location);
  }
  const std::string parent = location.substr(0, slash);
  const std::filesystem::path path = folder.path() / parent;
  const UniqueFd fd(open_in(folder.fd(), parent));
  return fd ? open_hub_link(fd.get(), path, location.substr(slash + 1))
            : fail(open_error(errno, path));
}

// Returns whether a hard link in the folder discloses nothing, because the file belongs to the
// folder's owner and everybody who may read the folder may also read the file.
bool is_as_readable_as(int folder, const SourceFile& file) {
  constexpr mode_t kOthersRead = S_IRGRP | S_IROTH;
  struct stat of_folder {};
  struct stat of_file {};
  return ::fstat(folder, &of_folder) == 0 && ::fstat(file.fd(), &of_file) == 0 &&
         of_folder.st_uid == of_file.st_uid &&
         (of_folder.st_mode & ~of_file.st_mode & kOthersRead) == 0;
}

// Returns text that names files which may be the missing one, or says that the file is next to the
// model; "" if nothing is found.
std::string meant_file_text(const Directory& folder, const std::string& location) {
  const std::size_t slash = location.rfind('/');
  if (slash == std::string::npos) {
    return similar_files_text(folder.fd(), location);
  }
  const std::string name = location.substr(slash + 1);
  if (const UniqueFd parent(open_in(folder.fd(), location.substr(0, slash))); parent) {
    return similar_files_text(parent.get(), name);
  }
  struct stat beside {};
  return ::fstatat(folder.fd(), name.c_str(), &beside, AT_SYMLINK_NOFOLLOW) == 0
             ? "; " + quote(name) + " is next to the model: move it to " + quote(location)
             : similar_files_text(folder.fd(), name);
}

// Returns whether the target of a link does not exist.
bool is_broken_link(const Directory& folder, const std::string& location) {
  struct stat target {};
  return ::fstatat(folder.fd(), location.c_str(), &target, 0) != 0 && errno == ENOENT;
}

// Rejects a file that was stored in place of a data file: a pointer, a web page, an incomplete
// download.
Status check_is_data(const SourceFile& file) {
  TRY_ASSIGN(const auto head, head_of(file));
  if (const auto found = foreign_data(head)) {
    return fail(ErrorCode::kInvalidArgument, file.name() + ": " + *found);
  }
  return check_is_written(file);
}

}  // namespace

Status check_plain_name(std::string_view name) {
  if (name.empty()) {
    return bad(name, "an empty name");
  }
  if (name == "." || name == "..") {
    return bad(name, "names a folder, not a file in it");
  }
  if (name.size() > kMaxNameBytes) {
    return bad(name, "longer than " + std::to_string(kMaxNameBytes) + " bytes");
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || c == '/' || c == '\\') {
      return bad(name, "contains a slash, a backslash or a control character");
    }
  }
  return {};
}

Status check_relative_location(std::string_view location) {
  if (location.empty() || location.size() > kMaxLocationBytes) {
    return bad_length(location);
  }
  if (location.front() == '/') {
    return absolute(location);
  }
  if (location.front() == '#') {
    return bad(location, "starts with '#', which onnx reserves for data in memory");
  }
  if (location.find("..") != std::string_view::npos) {
    return bad(location, "contains \"..\"");
  }
  for (std::size_t start = 0; start <= location.size();) {
    const std::size_t slash = std::min(location.find('/', start), location.size());
    if (!check_plain_name(location.substr(start, slash - start))) {
      return bad(location, "a component is not a plain name");
    }
    start = slash + 1;
  }
  return {};
}

Result<std::string> plain_location(std::string_view location) {
  if (location.empty() || location.size() > kMaxLocationBytes) {
    return bad_length(location);
  }
  if (location.front() == '/') {
    return absolute(location);
  }
  std::string plain;
  for (std::size_t start = 0; start <= location.size();) {
    const std::size_t slash = std::min(location.find('/', start), location.size());
    const std::string_view name = location.substr(start, slash - start);
    const bool is_last = slash == location.size();
    start = slash + 1;
    if (!is_last && (name.empty() || name == ".")) {
      continue;
    }
    if (name == "..") {
      return bad(location, "has the component \"..\"");
    }
    if (!check_plain_name(name)) {
      return bad(location, "a component is not a plain name");
    }
    plain.append(plain.empty() ? "" : "/").append(name);
  }
  return plain;
}

Result<std::shared_ptr<const SourceFile>> open_beneath(const std::filesystem::path& folder,
                                                       std::string_view location) {
  TRY(check_relative_location(location));
  TRY_ASSIGN(auto directory, Directory::open(folder));
  return open_beneath(directory, location);
}

Result<std::shared_ptr<const SourceFile>> open_beneath(const Directory& folder,
                                                       std::string_view location) {
  TRY(check_relative_location(location));
  const std::filesystem::path path = folder.path() / location;
  UniqueFd fd(open_in(folder.fd(), location));
  if (!fd) {
    return fail(open_error(errno, path));
  }
  auto file = SourceFile::adopt(std::move(fd), path);
  if (file && (*file)->link_count() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                path.string() + ": has " + std::to_string((*file)->link_count()) +
                    " hard links; onnx rejects external data with more than one");
  }
  return file;
}

Result<std::shared_ptr<const SourceFile>> open_data_file(const Directory& folder,
                                                         std::string_view location,
                                                         bool* is_hub_link, DataCheck check) {
  TRY_ASSIGN(const auto plain, plain_location(location));
  const std::filesystem::path path = folder.path() / plain;
  UniqueFd fd(open_in(folder.fd(), plain));
  const bool is_link = !fd && (errno == ELOOP || errno == EXDEV);
  if (!fd && !is_link) {
    Error error = open_error(errno, path);
    error.message += error.code == ErrorCode::kNotFound ? meant_file_text(folder, plain) : "";
    return fail(std::move(error));
  }
  if (is_link) {
    auto linked = open_linked(folder, plain);
    if (!linked) {
      Error error = std::move(linked).error();
      if (is_broken_link(folder, plain)) {
        error.message +=
            "; the link is broken: its target does not exist" + meant_file_text(folder, plain);
      }
      return fail(std::move(error));
    }
    fd = *std::move(linked);
  }
  if (is_hub_link != nullptr) {
    *is_hub_link = is_link;
  }
  auto file = SourceFile::adopt(std::move(fd), path);
  if (file && (*file)->link_count() > 1 && !is_as_readable_as(folder.fd(), **file)) {
    return fail(ErrorCode::kInvalidArgument,
                path.string() + ": has " + std::to_string((*file)->link_count()) +
                    " hard links, and belongs to another user than its folder or has stricter "
                    "permissions: it could be a private file from elsewhere; copy it: cp FILE "
                    "FILE.new && mv FILE.new FILE");
  }
  if (file && check == DataCheck::kContents) {
    TRY(check_is_data(**file));
  }
  return file;
}

}  // namespace onnx_external
