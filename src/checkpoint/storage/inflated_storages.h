// Decompresses deflated storages into one unnamed temporary file. Each storage is decompressed only
// once.
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

// Creates a file without a name in `folder`. Its disk space is freed when its descriptor is closed.
[[nodiscard]] Result<UniqueFd> open_nameless_file(const std::filesystem::path& folder);

// The decompressed storages of a checkpoint. Thread-safe: if two threads request the same storage,
// it is inflated once, and both threads wait until it is inflated. Threads that request different
// storages do not wait for each other.
class InflatedStorages {
 public:
  explicit InflatedStorages(std::filesystem::path scratch_dir)
      : scratch_dir_(std::move(scratch_dir)) {}

  // Returns the location of the storage's inflated bytes, after checking their CRC. The descriptor
  // stays open during the lifetime of this object. Errors: kCorrupt; kIo, for example if the
  // scratch folder is full or missing. Requires: storage.compression == kDeflate.
  struct Place {
    int fd = -1;
    std::uint64_t offset = 0;
  };
  [[nodiscard]] Result<Place> get(std::uint32_t index, const Storage& storage,
                                  const SourceFile& file);

 private:
  struct Slot {
    std::mutex mutex;
    std::uint64_t offset = 0;
    bool inflated = false;
  };
  [[nodiscard]] Result<Slot*> slot_of(std::uint32_t index, const Storage& storage);

  std::filesystem::path scratch_dir_;
  std::mutex mutex_;  // guards the members below, but not the contents of the slots
  UniqueFd fd_;       // opened for the first storage, then never changed
  std::uint64_t end_ = 0;
  std::map<std::uint32_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace onnx_external
