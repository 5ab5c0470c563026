#include "save/plan_copier.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/read_step.h"
#include "base/text.h"
#include "base/try.h"
#include "save/copy_steps.h"
#include "save/file_syncer.h"
#include "save/item_copier.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// A file of the plan that is being written.
struct FileInWork {
  DataFile data;
  std::atomic<std::size_t> items_left{0};
};

// The chunks of a range, or of a pass, that was split.
struct Chunks {
  std::uint64_t bytes = 0;         // SplitRange::chunk_bytes
  std::vector<CopiedItem> copied;  // each by the thread that has copied it
  std::atomic<std::size_t> left{0};
};

// Takes the SHA-1 of a file that has been written, since only now all its bytes can be read in
// order.
Result<std::string> sha1_of(const OutputFile& file, std::uint64_t bytes) {
  Sha sha(Sha::Kind::kSha1);
  IoBuffer buffer;
  TRY(for_each_step(bytes, buffer, [&](std::uint64_t at, std::span<std::byte> chunk) -> Status {
    TRY(read_exact(file.fd(), at, chunk, file.name()));
    sha.update(chunk);
    return {};
  }));
  return sha.hex();
}

// Returns the number of files that may stay open until they are synced, so that the other files of
// the save can also be open.
std::size_t room_for_unsynced(const CopyJob& job, int threads) {
  constexpr std::size_t kOthers = 64;
  constexpr std::size_t kPerThread = 8;
  const std::size_t taken =
      job.checkpoint.files().size() + kOthers + kPerThread * static_cast<std::size_t>(threads);
  struct rlimit limit {};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > taken
             ? static_cast<std::size_t>(limit.rlim_cur) - taken
             : 0;
}

// Creating a file takes about as long as copying this many bytes.
constexpr std::uint64_t kBytesPerFile = std::uint64_t{64} << 10U;

class PlanCopier {
 public:
  PlanCopier(const CopyJob& job, ProgressMeter& meter)
      : job_(job),
        meter_(meter),
        threads_(thread_count(job.options.threads,
                              job.plan.bytes + kBytesPerFile * job.plan.files.size())),
        steps_(plan_copy(job, threads_)),
        buffers_(static_cast<std::size_t>(threads_)),
        syncer_(job.options.sync, job.plan.files.size(), room_for_unsynced(job, threads_)),
        copier_(job, [&meter](std::uint64_t bytes) { return meter.add(bytes); }),
        files_(job.plan.files.size()) {
    copied_.crcs.resize(job.plan.ranges.size());
    copied_.infinite.resize(job.plan.ranges.size());
    copied_.sha1s.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.ranges.size(); ++i) {
      copied_.crcs[i] = job.done[i].value_or(0);
    }
    for (std::size_t file = 0; file < files_.size(); ++file) {
      files_[file].items_left = steps_.files[file].items;
    }
    for (const auto& [range, split] : steps_.split) {
      Chunks& chunks = chunks_[range];
      chunks.bytes = split.chunk_bytes;
      chunks.copied.resize(split.chunks);
      chunks.left = split.chunks;
    }
  }

  Result<CopiedFiles> run() {
    meter_.begin(Phase::kCopy, steps_.bytes);
    TRY(check_model_sources());
    TRY(parallel_for(steps_.items.size(), threads_, [this](std::size_t index, int thread) {
      return copy(steps_.items[index], buffers_[static_cast<std::size_t>(thread)]);
    }));
    for (std::size_t i = 0; i < copied_.infinite.size(); ++i) {
      copied_.infinite[i] = job_.done[i].has_value() || copier_.gave_infinity(i);
    }
    TRY(add_checksums_of_done_files());
    TRY(meter_.finish());
    TRY(syncer_.finish(job_.data, job_.plan.bytes, threads_, meter_));
    return std::move(copied_);
  }

 private:
  // A model may state any range, so all ranges are checked before space is reserved for them.
  Status check_model_sources() const {
    for (std::uint32_t range = 0; range < job_.plan.ranges.size(); ++range) {
      if (tensor_of(job_.plan, range).source != TensorSource::kCheckpoint) {
        TRY(source_of(range));
      }
    }
    return {};
  }

  std::uint32_t file_of(std::size_t range) const { return job_.plan.ranges[range].file; }

  Result<RangeSource> source_of(std::uint32_t range) const {
    return onnx_external::source_of(tensor_of(job_.plan, range), job_.models, job_.checkpoint);
  }

  // Only a new file is sure to have zeros where nothing is written.
  bool is_sparse(std::uint32_t file) const {
    return job_.plan.files[file].hole_bytes > 0 && steps_.files[file].done == 0;
  }

  // A file with done ranges may exist already, or another process creates it (save/teamwork.h).
  Result<OutputFile> create(std::uint32_t file) const {
    const PlannedFile& planned = job_.plan.files[file];
    auto output = OutputFile::create(job_.data, planned.name);
    if (!output && output.error().code == ErrorCode::kAlreadyExists &&
        steps_.files[file].done > 0) {
      output = OutputFile::reopen(job_.data, planned.name);
    }
    if (!output) {
      return output;
    }
    TRY(is_sparse(file) ? output->grow(planned.bytes) : output->preallocate(planned.bytes));
    return output;
  }

  Status copy(const CopyItem& item, CopyBuffers& buffers) {
    const std::size_t ranges = ranges_of_pass(job_.plan, item.range);
    const std::uint32_t head_file = file_of(item.range);
    TRY_ASSIGN(const auto source, source_of(item.range));
    std::array<const OutputFile*, kMatrixParts> outputs{};
    for (std::size_t n = 0; n < ranges; ++n) {
      const std::uint32_t file = file_of(item.range + n);
      TRY_ASSIGN(outputs[n], files_[file].data.open([&] { return create(file); }));
    }
    const FileSteps& steps = steps_.files[head_file];
    const bool is_shared = threads_ > 1 && (steps.ranges > 1 || steps.items > 1);
    TRY_ASSIGN(const auto copied, copier_.copy({item, source, std::span(outputs).first(ranges),
                                                is_shared, is_sparse(head_file)},
                                               buffers));
    TRY(finish_item(item, source, copied));
    for (std::size_t n = 0; n < ranges; ++n) {
      const std::uint32_t file = file_of(item.range + n);
      TRY(--files_[file].items_left == 0 ? finish_file(file) : Status());
    }
    return {};
  }

  Status finish_item(const CopyItem& item, const RangeSource& source, const CopiedItem& copied) {
    const auto split = chunks_.find(item.range);
    if (split == chunks_.end()) {
      return finish_range(item.range, source, copied.crcs[0]);
    }
    Chunks& chunks = split->second;
    chunks.copied[static_cast<std::size_t>(item.first / chunks.bytes)] = copied;
    return --chunks.left == 0 ? finish_split(item.range, source, chunks) : Status();
  }

  // Joins the results of the chunks after all chunks were copied.
  Status finish_split(std::uint32_t head, const RangeSource& source, const Chunks& chunks) {
    const std::size_t ranges = ranges_of_pass(job_.plan, head);
    for (std::size_t n = 0; n < ranges; ++n) {
      std::optional<std::uint32_t> crc = 0;
      std::uint64_t left = job_.plan.ranges[head].bytes;
      for (const CopiedItem& chunk : chunks.copied) {
        const std::uint64_t length = std::min(left, chunks.bytes);
        const auto& added = chunk.crcs[n];
        crc = crc && added ? std::optional(crc32_concat(*crc, *added,
                                                        bytes_in_pass(job_.plan, head, n, length)))
                           : std::nullopt;
        left -= length;
      }
      TRY(finish_range(head + static_cast<std::uint32_t>(n), source, crc));
    }
    if (ranges > 1) {
      QuantizationError error;
      for (const CopiedItem& chunk : chunks.copied) {
        error.add(chunk.error);
      }
      const std::lock_guard<std::mutex> lock(errors_mutex_);
      copied_.errors.emplace(head, error);
    }
    return {};
  }

  // All items of the file are copied.
  Status finish_file(std::uint32_t number) {
    const std::uint64_t bytes = job_.plan.files[number].bytes;
    auto output = files_[number].data.take();
    if (job_.options.checksum == Checksum::kSha1) {
      TRY_ASSIGN(copied_.sha1s[number], sha1_of(*output, bytes));
    }
    return syncer_.close(*std::move(output), bytes);
  }

  // All bytes of the range are in its file.
  Status finish_range(std::uint32_t range, const RangeSource& source,
                      std::optional<std::uint32_t> computed) {
    if (computed && source.recorded_crc && *computed != *source.recorded_crc) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: byte {}: the CRC-32 of the {} bytes is {}, but the file "
                              "records {}; it is damaged",
                              source.file->name(), source.offset, job_.plan.ranges[range].bytes,
                              hex_text(*computed), hex_text(*source.recorded_crc)));
    }
    copied_.crcs[range] = computed ? *computed : source.recorded_crc.value_or(0);
    return job_.record == nullptr
               ? Status()
               : job_.record->add(range, copied_.crcs[range], job_.plan.ranges[range].bytes);
  }

  Status add_checksums_of_done_files() {
    if (job_.options.checksum == Checksum::kNone) {
      return {};
    }
    return parallel_for(steps_.files.size(), threads_, [this](std::size_t number, int) -> Status {
      const FileSteps& file = steps_.files[number];
      if (file.done < file.ranges || file.ranges == 0) {
        return {};
      }
      const PlannedFile& planned = job_.plan.files[number];
      TRY_ASSIGN(const auto output, OutputFile::reopen(job_.data, planned.name));
      TRY_ASSIGN(copied_.sha1s[number], sha1_of(output, planned.bytes));
      return {};
    });
  }

  const CopyJob& job_;
  ProgressMeter& meter_;
  int threads_;
  CopySteps steps_;
  std::vector<CopyBuffers> buffers_;  // of each thread
  FileSyncer syncer_;
  ItemCopier copier_;
  std::vector<FileInWork> files_;           // same indices as SavePlan::files
  std::map<std::uint32_t, Chunks> chunks_;  // of ranges that are split, and of all passes
  std::mutex errors_mutex_;                 // guards copied_.errors
  CopiedFiles copied_;
};

}  // namespace

Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter) {
  return PlanCopier(job, meter).run();
}

}  // namespace onnx_external
