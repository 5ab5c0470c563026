// Compressed storages, inflated once each into nameless temporary files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A file in `folder` that has no name and disappears when the descriptor closes.
[[nodiscard]] Result<UniqueFd> open_nameless_file(const std::filesystem::path& folder);

// Thread-safe: two threads that want one storage wait for one inflation; different storages do not
// wait for each other.
class InflatedStorages {
 public:
  explicit InflatedStorages(std::filesystem::path scratch_dir)
      : scratch_dir_(std::move(scratch_dir)) {}

  // The descriptor of a file that holds exactly the storage's bytes, CRC checked. It stays open as
  // long as this object. kCorrupt, kIo (scratch folder full or missing).
  // Requires: storage.compression == kDeflate.
  [[nodiscard]] Result<int> get(std::uint32_t index, const Storage& storage,
                                const SourceFile& file);

 private:
  struct Slot {
    std::mutex mutex;
    UniqueFd fd;
  };
  std::filesystem::path scratch_dir_;
  std::mutex mutex_;  // guards slots_, not what they hold
  std::map<std::uint32_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace onnx_external
