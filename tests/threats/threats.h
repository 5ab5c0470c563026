// What the tests of the threat model (docs/security.md) share: values at which arithmetic breaks,
// and a folder that notices who comes by.
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

// More than any small file may take, whatever it declares.
inline constexpr std::size_t kModestMemory = std::size_t{8} << 20;

// At least 24 values: zeros, ones, the edges of signed and unsigned numbers of each size, and the
// neighbours of what stood there and of the file's size.
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

// A file that only memory holds: thousands of them cost nothing.
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

// A checkpoint file of the float tensor "w".
inline std::string with_pickle_of(const std::string& floats) {
  return torch_zip(
      {{.name = "w", .shape = {static_cast<std::int64_t>(floats.size() / 4)}, .bytes = floats}});
}

// A folder with a secret file; the kernel tells whether anything in it, or it, was opened, read,
// made, removed or changed.
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

  // Since the start, or the last call. Nothing else may be in the folder's neighbourhood.
  [[nodiscard]] bool was_touched() const {
    std::array<char, 4096> events{};
    return ::read(watch_, events.data(), events.size()) > 0;
  }

 private:
  TempDir dir_;
  int watch_;
};

}  // namespace onnx_external
