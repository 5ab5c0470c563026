// Closes written files: at once, or when they are on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/directory.h"
#include "base/output_file.h"
#include "base/progress_meter.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Files of all threads together that wait, written but open, for the disk.
inline constexpr std::size_t kMaxUnsyncedFiles = 256;

// With more files than this, one sync of the file system costs less than waiting for each.
inline constexpr std::size_t kMaxFilesSyncedAlone = 256;
// Such files are sent to the disk early from this size up; for smaller ones the call costs more.
inline constexpr std::uint64_t kMinEarlyWriteback = std::uint64_t{1} << 20;

// Whether so many files wait for the disk together (Directory::sync_file_system).
[[nodiscard]] bool are_synced_together(std::size_t files);

class FileSyncer {
 public:
  // `files` will be written by `threads` threads; `most_open` of them may wait open.
  FileSyncer(Sync sync, std::size_t files, std::size_t most_open, int threads);

  // Takes a file of so many bytes, all of them written. Thread-safe for different `thread`, which
  // is in [0, threads).
  [[nodiscard]] Status close(OutputFile file, std::uint64_t bytes, int thread);

  // Waits for all that close() has taken, files in `folder` of `bytes` in all. Call once, last;
  // kCancelled when the meter says so.
  [[nodiscard]] Status finish(const Directory& folder, std::uint64_t bytes, ProgressMeter& meter);

 private:
  struct UnsyncedFile {
    OutputFile output;
    std::uint64_t bytes = 0;
    [[nodiscard]] Status sync_and_close();
  };
  [[nodiscard]] Status finish_each(ProgressMeter& meter);

  Sync sync_;
  bool together_;
  std::size_t most_unsynced_;                       // of one thread
  std::vector<std::deque<UnsyncedFile>> unsynced_;  // index: the thread
};

}  // namespace onnx_external
