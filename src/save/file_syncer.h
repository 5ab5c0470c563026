// Closes written files. If files must be synced, a file is closed only after it is on the disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "base/directory.h"
#include "base/output_file.h"
#include "base/progress_meter.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// The maximum number of written files that stay open until they are on the disk. If instead each
// file was synced when it was written, a save of 1 GB in 201 tensors took 1.5 times as long (ext4
// on a disk).
inline constexpr std::size_t kMaxUnsyncedFiles = 256;

// If there are more files than this, a single sync of the whole file system is faster than a sync
// of each file. For 20,000 tensors of 10 KB, the difference is a fifth of the time of the save
// (ext4 in memory; more on a disk).
inline constexpr std::size_t kMaxFilesSyncedAlone = 256;
// The minimum size of files whose writeback is started early. Without early writeback, a save of 1
// GB in 201 tensors took 1.6 times as long. For many smaller files, the call takes more time than
// it saves.
inline constexpr std::uint64_t kMinEarlyWriteback = std::uint64_t{1} << 20;

// The number of bytes that are written to a file before their writeback is started, so that the
// disk writes while more is copied. With a cold source, a save of 2 GB as int4 in one file took 4
// to 12 % less time than with writeback at the end (ext4 on a virtual disk).
inline constexpr std::uint64_t kWritebackStep = std::uint64_t{2} << 20;

// Returns whether a save of this many files syncs the whole file system once
// (Directory::sync_file_system), instead of each file.
[[nodiscard]] bool are_synced_together(std::size_t files);

// A data file that several threads write. The first thread creates the file, and the last thread
// takes it.
class DataFile {
 public:
  // Returns the file, which the first call creates by calling `create`. If `create` fails, all
  // later calls return the same error, because a second attempt would find what the first one left.
  // Thread-safe.
  template <typename Create>
  [[nodiscard]] Result<OutputFile*> open(const Create& create) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made_) {
      made_.emplace(create());
    }
    return *made_ ? Result<OutputFile*>(&**made_) : fail(Error(made_->error()));
  }

  // Counts bytes that were written. Returns whether their writeback should start. Thread-safe.
  [[nodiscard]] bool count_written(std::uint64_t bytes) {
    const std::uint64_t before = written_.fetch_add(bytes);
    return before / kWritebackStep != (before + bytes) / kWritebackStep;
  }

  // Returns the file, or nullopt if it was not created. Requires: no thread is still writing the
  // file.
  [[nodiscard]] std::optional<OutputFile> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::optional<OutputFile> taken;
    if (made_ && *made_) {
      taken.emplace(**std::move(made_));
      made_.reset();
    }
    return taken;
  }

 private:
  std::mutex mutex_;
  std::optional<Result<OutputFile>> made_;
  std::atomic<std::uint64_t> written_{0};
};

class FileSyncer {
 public:
  // `files` is the number of files that will be closed, or 0 if it is not known. At most
  // `most_open` files stay open.
  FileSyncer(Sync sync, std::size_t files, std::size_t most_open);

  // Says that `bytes` bytes of `data`, which is open as `output`, have been written. If files must
  // be synced, the disk starts to write them before the file is closed. Thread-safe.
  void add_written(DataFile& data, const OutputFile& output, std::uint64_t bytes) const;

  // Takes ownership of a file whose `bytes` bytes have all been written. Thread-safe. An error may
  // be that of an earlier file, so the caller must treat all files as failed.
  [[nodiscard]] Status close(OutputFile file, std::uint64_t bytes);

  // Waits until all files passed to close() are on the disk. The files are in `folder` and have
  // `bytes` bytes in total. Must be called once, after all other calls. Returns the error of a
  // failed close() again; kCancelled if the callback of the meter asks to stop.
  [[nodiscard]] Status finish(const Directory& folder, std::uint64_t bytes, int threads,
                              ProgressMeter& meter);

 private:
  struct UnsyncedFile {
    OutputFile output;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Status sync_and_close(OutputFile& output);
  [[nodiscard]] Status finish_each(int threads, ProgressMeter& meter);

  Sync sync_;
  bool together_;
  std::size_t most_unsynced_;
  std::mutex mutex_;
  std::deque<UnsyncedFile> unsynced_;
  std::optional<Error> failed_;
};

}  // namespace onnx_external
