#include "save/plan_copier.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <semaphore>
#include <span>
#include <utility>

#include "base/checked_math.h"
#include "base/copy_range.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/safe_path.h"
#include "base/text.h"

namespace onnx_external {
namespace {

// Where the bytes of one planned file come from.
struct FileSource {
  std::shared_ptr<const SourceFile> file;  // null: read through the checkpoint
  std::uint64_t offset = 0;
  std::size_t tensor = 0;  // index into Checkpoint::tensors(), when `file` is null
  std::optional<std::uint32_t> recorded_crc;
};

struct WorkItem {
  std::uint32_t file = 0;
  std::uint64_t first = 0;
  std::uint64_t length = 0;
};

// A file that several work items write.
struct SharedFile {
  OutputFile output;
  FileSource source;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> chunks;  // first: length, CRC
};

struct UnsyncedFile {
  OutputFile output;
  std::uint64_t bytes = 0;

  Status sync_and_close() {
    Status status = output.sync();
    return status ? output.close() : status;
  }
};

// What one thread keeps between its work items.
struct Worker {
  RangeCopier copier;
  std::deque<UnsyncedFile> unsynced;
};

using Semaphore = std::counting_semaphore<kMaxRearranging>;

class SemaphoreHold {
 public:
  explicit SemaphoreHold(Semaphore& semaphore) : semaphore_(semaphore) { semaphore_.acquire(); }
  SemaphoreHold(const SemaphoreHold&) = delete;
  SemaphoreHold& operator=(const SemaphoreHold&) = delete;
  ~SemaphoreHold() { semaphore_.release(); }

 private:
  Semaphore& semaphore_;
};

std::vector<std::uint32_t> largest_first(const SavePlan& plan) {
  std::vector<std::uint32_t> order(plan.files.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return plan.files[a].bytes > plan.files[b].bytes;
  });
  return order;
}

class PlanCopier {
 public:
  PlanCopier(const CopyJob& job, ProgressMeter& meter)
      : job_(job),
        meter_(meter),
        threads_(thread_count(job.options.threads)),
        workers_(static_cast<std::size_t>(threads_)),
        syncs_together_(job.plan.files.size() > kMaxFilesSyncedAlone && syncs_report_errors()),
        step_([&meter](std::uint64_t bytes) { return meter.add(bytes); }) {
    copied_.crcs.resize(job.plan.files.size());
    copied_.sha1s.resize(job.plan.files.size());
  }

  Result<CopiedFiles> run() {
    meter_.begin(Phase::kCopy, job_.plan.bytes);
    Status status = check_model_sources();
    if (status) {
      status = make_items();
    }
    if (status) {
      status = parallel_for(items_.size(), threads_, [this](std::size_t index, int thread) {
        const WorkItem& item = items_[index];
        Worker& worker = workers_[static_cast<std::size_t>(thread)];
        return shared_.contains(item.file) ? copy_chunk(item, worker) : copy_file(item, worker);
      });
    }
    if (status) {
      status = finish_shared_files();
    }
    if (status) {
      status = meter_.finish();
    }
    if (status) {
      status = sync_rest();
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return std::move(copied_);
  }

 private:
  // The model only states its ranges: none is reserved before all are known to exist.
  Status check_model_sources() const {
    for (std::uint32_t file = 0; file < job_.plan.files.size(); ++file) {
      if (is_checkpoint_file(file)) {
        continue;
      }
      if (auto source = source_of(file); !source) {
        return fail(std::move(source).error());
      }
    }
    return {};
  }

  bool is_split(std::uint64_t bytes) const {
    const std::uint64_t fair_share = job_.plan.bytes / static_cast<std::uint64_t>(threads_);
    return threads_ > 1 && bytes > kCopyChunkBytes && bytes > fair_share &&
           job_.options.checksum == Checksum::kNone;  // SHA-1 has no way to join chunks
  }

  Status make_items() {
    for (const std::uint32_t file : largest_first(job_.plan)) {
      const std::uint64_t bytes = job_.plan.files[file].bytes;
      if (!is_split(bytes)) {
        items_.push_back(WorkItem{file, 0, bytes});
        continue;
      }
      auto shared = open_shared(file);
      if (!shared) {
        return fail(std::move(shared).error());
      }
      for (std::uint64_t first = 0; first < bytes; first += kCopyChunkBytes) {
        const std::uint64_t length = std::min(kCopyChunkBytes, bytes - first);
        shared->chunks.emplace(first, std::pair(length, 0U));
        items_.push_back(WorkItem{file, first, length});
      }
      shared_.emplace(file, *std::move(shared));
    }
    return {};
  }

  Result<SharedFile> open_shared(std::uint32_t file) const {
    auto source = source_of(file);
    if (!source) {
      return fail(std::move(source).error());
    }
    auto output = create(file);
    if (!output) {
      return fail(std::move(output).error());
    }
    return SharedFile{*std::move(output), *std::move(source), {}};
  }

  Result<OutputFile> create(std::uint32_t file) const {
    const PlannedFile& planned = job_.plan.files[file];
    auto output = OutputFile::create(job_.data, planned.name);
    if (!output) {
      return output;
    }
    if (Status room = output->preallocate(planned.bytes); !room) {
      return fail(std::move(room).error());
    }
    return output;
  }

  Result<FileSource> source_of(std::uint32_t file) const {
    const PlannedTensor& tensor = job_.plan.tensors[job_.plan.files[file].source_tensor];
    if (tensor.source == TensorSource::kModelExternal) {
      const ExternalTensor& external = job_.model.external_tensors()[tensor.source_index];
      auto source = open_beneath(job_.model.source_dir(), external.location);
      if (!source) {
        return fail_in("initializer " + quote(tensor.name), std::move(source).error());
      }
      if (!range_fits(external.offset, external.length, (*source)->size())) {
        return fail(ErrorCode::kCorrupt,
                    fmt::format("initializer {}: {}: {} bytes at {} do not fit into the {} bytes "
                                "of the file",
                                quote(tensor.name), (*source)->name(), external.length,
                                external.offset, (*source)->size()));
      }
      return FileSource{*std::move(source), external.offset, 0, std::nullopt};
    }
    const auto range = job_.checkpoint.plain_range(tensor.source_index);
    if (!range) {
      return FileSource{nullptr, 0, tensor.source_index, std::nullopt};
    }
    return FileSource{job_.checkpoint.files()[range->file], range->offset, 0,
                      job_.checkpoint.recorded_crc(tensor.source_index)};
  }

  // Copies the item's bytes and returns their CRC-32.
  Result<std::uint32_t> copy_bytes(const WorkItem& item, const FileSource& source,
                                   const OutputFile& output, Worker& worker, Sha* sha) {
    Crc32 crc;
    Status status;
    if (!source.file) {
      status = rearrange(item, source.tensor, output, crc, sha);
    } else if (splices(item, source) && sha == nullptr) {
      status = worker.copier.copy(*source.file, source.offset + item.first, item.length, output,
                                  item.first, step_);
    } else {
      status = worker.copier.copy_with_digests(*source.file, source.offset + item.first,
                                               item.length, output, item.first, step_, crc, sha);
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return crc.value();
  }

  // A record whose CRC is known is moved inside the kernel; the read-back proves it. Below the
  // buffer's size the buffer costs no more, and checks the CRC at once.
  static bool splices(const WorkItem& item, const FileSource& source) {
    return source.recorded_crc && item.length > kCopyBufferBytes;
  }

  Status rearrange(const WorkItem& item, std::size_t tensor, const OutputFile& output, Crc32& crc,
                   Sha* sha) {
    const SemaphoreHold hold(rearranging_);
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<std::size_t>(std::min(item.length, kRearrangeBytes)));
    for (std::uint64_t done = 0; done < item.length;) {
      const std::uint64_t count = std::min(kRearrangeBytes, item.length - done);
      const std::span<std::byte> piece(buffer.get(), static_cast<std::size_t>(count));
      if (Status read = job_.checkpoint.read(tensor, item.first + done, piece); !read) {
        return read;
      }
      crc.update(piece);
      if (sha != nullptr) {
        sha->update(piece);
      }
      if (Status written = output.write(item.first + done, piece); !written) {
        return written;
      }
      done += count;
      if (!step_(count)) {
        return fail(ErrorCode::kCancelled, "cancelled");
      }
    }
    return {};
  }

  Status copy_file(const WorkItem& item, Worker& worker) {
    auto source = source_of(item.file);
    if (!source) {
      return fail(std::move(source).error());
    }
    auto output = create(item.file);
    if (!output) {
      return fail(std::move(output).error());
    }
    std::optional<Sha> sha;
    if (job_.options.checksum == Checksum::kSha1) {
      sha.emplace(Sha::Kind::kSha1);
    }
    auto crc = copy_bytes(item, *source, *output, worker, sha ? &*sha : nullptr);
    if (!crc) {
      return fail(std::move(crc).error());
    }
    if (sha) {
      copied_.sha1s[item.file] = sha->hex();
    }
    const bool computed = sha || !splices(item, *source);
    return finish_file(item.file, *source, computed ? std::optional(*crc) : std::nullopt,
                       *std::move(output), worker);
  }

  // `computed`: the CRC-32 of the whole file where it went through a buffer.
  Status finish_file(std::uint32_t file, const FileSource& source,
                     std::optional<std::uint32_t> computed, OutputFile output, Worker& worker) {
    Status status = set_crc(file, source, computed);
    if (status && !is_checkpoint_file(file)) {
      status = source.file->check_unchanged();
    }
    return status ? hand_over({std::move(output), job_.plan.files[file].bytes}, worker) : status;
  }

  bool is_checkpoint_file(std::uint32_t file) const {
    const PlannedTensor& tensor = job_.plan.tensors[job_.plan.files[file].source_tensor];
    return tensor.source == TensorSource::kCheckpoint;
  }

  Status set_crc(std::uint32_t file, const FileSource& source,
                 std::optional<std::uint32_t> computed) {
    if (computed && source.recorded_crc && *computed != *source.recorded_crc) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: byte {}: the CRC-32 of the {} bytes is {:08x}, but the file "
                              "records {:08x}; it is damaged",
                              source.file->name(), source.offset, job_.plan.files[file].bytes,
                              *computed, *source.recorded_crc));
    }
    copied_.crcs[file] = computed ? *computed : source.recorded_crc.value_or(0);
    return {};
  }

  Status copy_chunk(const WorkItem& item, Worker& worker) {
    SharedFile& shared = shared_.at(item.file);
    auto crc = copy_bytes(item, shared.source, shared.output, worker, nullptr);
    if (!crc) {
      return fail(std::move(crc).error());
    }
    shared.chunks.at(item.first).second = *crc;  // each chunk is of one thread
    return {};
  }

  Status finish_shared_files() {
    for (auto& [file, shared] : shared_) {
      std::optional<std::uint32_t> crc;
      if (!shared.source.recorded_crc) {
        crc = 0;
        for (const auto& [first, chunk] : shared.chunks) {
          crc = crc32_concat(*crc, chunk.second, chunk.first);
        }
      }
      Status status =
          finish_file(file, shared.source, crc, std::move(shared.output), workers_.front());
      if (!status) {
        return status;
      }
    }
    return {};
  }

  // Closes a written file: at once, or once it is on the disk. Waiting a while before the fsync
  // lets the disk work behind the copying, and lets one journal commit serve many files.
  Status hand_over(UnsyncedFile file, Worker& worker) {
    if (job_.options.sync == Sync::kNone) {
      return file.output.close();
    }
    if (!syncs_together_ || file.bytes >= kMinEarlyWriteback) {
      file.output.start_writeback();
    }
    if (syncs_together_) {
      return file.output.close();
    }
    worker.unsynced.push_back(std::move(file));
    if (worker.unsynced.size() <= kMaxUnsyncedFiles / static_cast<std::size_t>(threads_)) {
      return {};
    }
    UnsyncedFile oldest = std::move(worker.unsynced.front());
    worker.unsynced.pop_front();
    return oldest.sync_and_close();
  }

  Status sync_rest() {
    if (job_.options.sync == Sync::kNone) {
      return {};
    }
    if (syncs_together_) {
      meter_.begin(Phase::kSync, job_.plan.bytes);
      (void)meter_.add(0);  // shows that the wait has begun
      Status status = job_.data.sync_file_system();
      (void)meter_.add(job_.plan.bytes);
      return status ? meter_.finish() : status;
    }
    std::vector<UnsyncedFile> rest;
    std::uint64_t bytes = 0;
    for (Worker& worker : workers_) {
      for (UnsyncedFile& file : worker.unsynced) {
        bytes += file.bytes;
        rest.push_back(std::move(file));
      }
      worker.unsynced.clear();
    }
    meter_.begin(Phase::kSync, bytes);
    Status status = parallel_for(rest.size(), threads_, [&](std::size_t index, int) -> Status {
      if (Status synced = rest[index].sync_and_close(); !synced) {
        return synced;
      }
      return meter_.add(rest[index].bytes) ? Status() : fail(ErrorCode::kCancelled, "cancelled");
    });
    return status ? meter_.finish() : status;
  }

  const CopyJob& job_;
  ProgressMeter& meter_;
  int threads_;
  std::vector<Worker> workers_;
  bool syncs_together_;  // one wait for all files, not one for each
  StepFn step_;
  std::vector<WorkItem> items_;
  std::map<std::uint32_t, SharedFile> shared_;
  CopiedFiles copied_;
  Semaphore rearranging_{kMaxRearranging};
};

}  // namespace

Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter) {
  return PlanCopier(job, meter).run();
}

}  // namespace onnx_external
