#include "base/hub_link.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/safe_path.h"
#include "base/text.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUp = "../";
constexpr std::string_view kBlobs = "blobs/";
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;

// The target of a link: a number of folders up, then this blob.
struct BlobLink {
  std::size_t up = 0;
  std::string blob;  // empty: another target
};

BlobLink parse_link(std::string_view target) {
  BlobLink link;
  for (; target.starts_with(kUp); target.remove_prefix(kUp.size())) {
    ++link.up;
  }
  if (target.starts_with(kBlobs) && check_plain_name(target.substr(kBlobs.size()))) {
    link.blob = target.substr(kBlobs.size());
  }
  return link;
}

// Returns the path without links, in which ".." means the same as for the kernel.
fs::path without_links(const fs::path& folder) {
  std::error_code error;
  const fs::path path = folder.empty() ? fs::path(".") : folder;
  fs::path real = fs::canonical(path, error);
  return error ? fs::absolute(path, error).lexically_normal() : real;
}

// Returns how many levels the folder with the snapshots and blobs is above `folder`; 0 if there is
// none.
std::size_t levels_below_cache(fs::path folder) {
  for (std::size_t up = 1; folder.has_relative_path(); ++up) {
    const fs::path parent = folder.parent_path();
    if (up > 1 && folder.filename() == "snapshots") {
      return up;
    }
    folder = parent;
  }
  return 0;
}

}  // namespace

Result<UniqueFd> open_hub_link(int folder, const fs::path& path, const std::string& name) {
  const std::string where = (path / name).string();
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(folder, name.c_str(), target.data(), target.size());
  target.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  const BlobLink link = parse_link(target);
  if (link.blob.empty() || link.up != levels_below_cache(without_links(path))) {
    return fail(ErrorCode::kInvalidArgument,
                where + ": is a symbolic link to " + quote(target) +
                    "; only links into the blobs folder of a Hugging Face cache are followed; "
                    "replace the link with the file: cp --remove-destination TARGET LINK");
  }
  std::string up;
  for (std::size_t i = 0; i < link.up; ++i) {
    up += kUp;
  }
  const UniqueFd blobs(::openat(folder, (up + "blobs").c_str(), kOpenFlags | O_DIRECTORY));
  if (!blobs) {
    return fail(errno_error(errno, where + ": cannot open the cache's blobs folder"));
  }
  UniqueFd fd(::openat(blobs.get(), link.blob.c_str(), kOpenFlags));
  if (!fd) {
    return fail(errno_error(errno, where + ": cannot open blob " + quote(link.blob)));
  }
  return fd;
}

fs::path hub_blobs_of(const fs::path& folder) {
  fs::path cache = without_links(folder);
  const std::size_t levels = levels_below_cache(cache);
  for (std::size_t i = 0; i < levels; ++i) {
    cache = cache.parent_path();
  }
  return levels == 0 ? fs::path() : cache / "blobs";
}

}  // namespace onnx_external
