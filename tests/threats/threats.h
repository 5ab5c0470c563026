// Provides helpers for the tests of the threat model (docs/security.md): values at which arithmetic
// fails, and a folder that records accesses.
#pragma once

#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "support/pickle_builder.h"
#include "support/temp_dir.h"
#include "support/torch_file.h"

namespace onnx_external {

// The limit of memory for any small file, regardless of the sizes that the file declares.
inline constexpr std::size_t kModestMemory = std::size_t{8} << 20;

// Returns at least 24 values: zeros, ones, the limits of signed and unsigned integers of each size,
// and the neighbours of the original value and of the file size.
inline std::vector<std::uint64_t> boundary_values(std::uint64_t before, std::uint64_t file_size) {
  std::set<std::uint64_t> values{0, 1, 2, 0x7f, 0x80, 0xff, 0x100};
  for (const int bits : {15, 16, 31, 32, 63}) {
    const std::uint64_t edge = std::uint64_t{1} << bits;
    values.insert({edge - 1, edge, edge + 1});
  }
  values.insert({~std::uint64_t{0}, ~std::uint64_t{0} - 1, ~std::uint64_t{0} - 7});
  values.insert({before + 1, before - 1, before * 2, file_size, file_size - 1, file_size + 1});
  values.erase(before);
  return {values.begin(), values.end()};
}

// A file in memory, so that thousands of files take almost no time.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("threat", MFD_CLOEXEC)) {
    (void)write_all(fd_.get(), 0, std::as_bytes(std::span(bytes)), "threat");
  }
  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(fd_.get());
  }

 private:
  UniqueFd fd_;
};

inline Result<Checkpoint> open_in_memory(const std::string& bytes,
                                         const OpenOptions& options = {}) {
  const MemoryFile file(bytes);
  const std::vector<std::filesystem::path> paths{file.path()};
  return open_checkpoint(paths, options);
}

// Returns a checkpoint file with the float tensor "w".
inline std::string with_pickle_of(const std::string& floats) {
  return torch_zip(
      {{.name = "w", .shape = {static_cast<std::int64_t>(floats.size() / 4)}, .bytes = floats}});
}

// A folder with a secret file. The kernel reports whether the folder or anything in it was opened,
// read, created, removed or changed.
class WatchedFolder {
 public:
  WatchedFolder() : watch_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    dir_.write("secret", "secret");
    (void)::inotify_add_watch(watch_, dir_.path().c_str(), IN_ALL_EVENTS);
  }
  WatchedFolder(const WatchedFolder&) = delete;
  WatchedFolder& operator=(const WatchedFolder&) = delete;
  ~WatchedFolder() { ::close(watch_); }

  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }
  [[nodiscard]] std::filesystem::path file() const { return dir_.path() / "secret"; }

  // Returns whether this happened since the start or the last call. Nothing else may use the
  // folder.
  [[nodiscard]] bool was_touched() const {
    std::array<char, 4096> events{};
    return ::read(watch_, events.data(), events.size()) > 0;
  }

 private:
  TempDir dir_;
  int watch_;
};

}  // namespace onnx_external
