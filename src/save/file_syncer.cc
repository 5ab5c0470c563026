#include "save/file_syncer.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"
#include "base/try.h"

namespace onnx_external {

bool are_synced_together(std::size_t files) {
  return files > kMaxFilesSyncedAlone && syncs_report_errors();
}

FileSyncer::FileSyncer(Sync sync, std::size_t files, std::size_t most_open)
    : sync_(sync),
      together_(are_synced_together(files)),
      most_unsynced_(std::min(most_open, kMaxUnsyncedFiles)) {}

void FileSyncer::add_written(DataFile& data, const OutputFile& output, std::uint64_t bytes) const {
  if (sync_ != Sync::kNone && data.count_written(bytes)) {
    output.start_writeback();
  }
}

// Waiting a while before the fsync lets the disk work in parallel with the copying, and lets one
// journal commit serve many files.
Status FileSyncer::close(OutputFile file, std::uint64_t bytes) {
  if (sync_ == Sync::kNone) {
    return file.close();
  }
  if (!together_ || bytes >= kMinEarlyWriteback) {
    file.start_writeback();
  }
  if (together_) {
    return file.close();
  }
  std::optional<UnsyncedFile> oldest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsynced_.push_back({std::move(file), bytes});
    if (unsynced_.size() > most_unsynced_) {
      oldest.emplace(std::move(unsynced_.front()));
      unsynced_.pop_front();
    }
  }
  return oldest ? sync_and_close(oldest->output) : Status();
}

Status FileSyncer::sync_and_close(OutputFile& output) {
  Status status = output.sync();
  if (status) {
    status = output.close();
  }
  if (!status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = status.error();
  }
  return status;
}

Status FileSyncer::finish(const Directory& folder, std::uint64_t bytes, int threads,
                          ProgressMeter& meter) {
  if (sync_ == Sync::kNone) {
    return {};
  }
  if (!together_) {
    return finish_each(threads, meter);
  }
  meter.begin(Phase::kSync, bytes);
  (void)meter.add(0);  // shows that the wait has begun
  Status status = folder.sync_file_system();
  (void)meter.add(bytes);
  return status ? meter.finish() : status;
}

Status FileSyncer::finish_each(int threads, ProgressMeter& meter) {
  if (failed_) {
    return fail(*failed_);
  }
  std::uint64_t bytes = 0;
  for (const UnsyncedFile& file : unsynced_) {
    bytes += file.bytes;
  }
  meter.begin(Phase::kSync, bytes);
  // The threads wait for the disk, for which C++'s begin sooner than an OpenMP region.
  TRY(parallel_tasks(unsynced_.size(), threads, [&](std::size_t index, int) -> Status {
    TRY(sync_and_close(unsynced_[index].output));
    return meter.step(unsynced_[index].bytes);
  }));
  return meter.finish();
}

}  // namespace onnx_external
