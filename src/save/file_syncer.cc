#include "save/file_syncer.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"
#include "base/try.h"

namespace onnx_external {
bool are_synced_together(std::size_t files) {
  return files > kMaxFilesSyncedAlone && syncs_report_errors();
}

Status FileSyncer::UnsyncedFile::sync_and_close() {
  Status status = output.sync();
  return status ? output.close() : status;
}

FileSyncer::FileSyncer(Sync sync, std::size_t files, std::size_t most_open, int threads)
    : sync_(sync),
      together_(are_synced_together(files)),
      most_unsynced_(std::min(most_open, kMaxUnsyncedFiles) / static_cast<std::size_t>(threads)),
      unsynced_(static_cast<std::size_t>(threads)) {}

// Waiting a while before the fsync lets the disk work behind the copying, and lets one journal
// commit serve many files.
Status FileSyncer::close(OutputFile file, std::uint64_t bytes, int thread) {
  if (sync_ == Sync::kNone) {
    return file.close();
  }
  if (!together_ || bytes >= kMinEarlyWriteback) {
    file.start_writeback();
  }
  if (together_) {
    return file.close();
  }
  std::deque<UnsyncedFile>& unsynced = unsynced_[static_cast<std::size_t>(thread)];
  unsynced.push_back({std::move(file), bytes});
  if (unsynced.size() <= most_unsynced_) {
    return {};
  }
  UnsyncedFile oldest = std::move(unsynced.front());
  unsynced.pop_front();
  return oldest.sync_and_close();
}

Status FileSyncer::finish(const Directory& folder, std::uint64_t bytes, ProgressMeter& meter) {
  if (sync_ == Sync::kNone) {
    return {};
  }
  if (!together_) {
    return finish_each(meter);
  }
  meter.begin(Phase::kSync, bytes);
  (void)meter.add(0);  // shows that the wait has begun
  Status status = folder.sync_file_system();
  (void)meter.add(bytes);
  return status ? meter.finish() : status;
}

Status FileSyncer::finish_each(ProgressMeter& meter) {
  std::vector<UnsyncedFile> rest;
  std::uint64_t bytes = 0;
  for (std::deque<UnsyncedFile>& unsynced : unsynced_) {
    for (UnsyncedFile& file : unsynced) {
      bytes += file.bytes;
      rest.push_back(std::move(file));
    }
    unsynced.clear();
  }
  meter.begin(Phase::kSync, bytes);
  Status status = parallel_for(rest.size(), static_cast<int>(unsynced_.size()),
                               [&](std::size_t index, int) -> Status {
                                 TRY(rest[index].sync_and_close());
                                 return meter.step(rest[index].bytes);
                               });
  return status ? meter.finish() : status;
}

}  // namespace onnx_external
