#include "save/plan_copier.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "save/copy_steps.h"
#include "save/file_syncer.h"
#include "save/item_copier.h"
#include "save/pass_copier.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// A file that several items write.
struct SharedFile {
  DataFile data;
  std::atomic<std::size_t> items_left{0};
};

// The chunks of a range that was split.
struct Chunks {
  std::vector<std::uint32_t> crcs;
  std::atomic<std::size_t> left{0};
};

// The chunks of a pass.
struct PassChunks {
  std::uint64_t bytes = 0;  // pass_chunk_bytes()
  std::vector<PassResult> results;
  std::atomic<std::size_t> left{0};
};

Result<std::string> sha1_of(const OutputFile& file, std::uint64_t bytes) {
  Sha sha(Sha::Kind::kSha1);
  TRY(add_written(file, 0, bytes, sha));
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

// To create a file takes about as long as to copy this many bytes.
constexpr std::uint64_t kBytesPerFile = std::uint64_t{64} << 10U;

class PlanCopier {
 public:
  PlanCopier(const CopyJob& job, ProgressMeter& meter)
      : job_(job),
        meter_(meter),
        threads_(thread_count(job.options.threads,
                              job.plan.bytes + kBytesPerFile * job.plan.files.size())),
        steps_(plan_copy(job, threads_)),
        range_copiers_(static_cast<std::size_t>(threads_)),
        syncer_(job.options.sync, job.plan.files.size(), room_for_unsynced(job, threads_)),
        copier_(job, [&meter](std::uint64_t bytes) { return meter.add(bytes); }) {
    copied_.crcs.resize(job.plan.ranges.size());
    copied_.infinite.resize(job.plan.ranges.size());
    copied_.sha1s.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.ranges.size(); ++i) {
      copied_.crcs[i] = job.done[i].value_or(0);
    }
    for (const auto& [file, items] : steps_.shared) {
      shared_[file].items_left = items;
    }
    for (const auto& [range, chunks] : steps_.split) {
      if (is_pass(range)) {
        PassChunks& of_pass = pass_chunks_[range];
        of_pass.bytes = pass_chunk_bytes(job, range);
        of_pass.results.resize(chunks);
        of_pass.left = chunks;
        continue;
      }
      chunks_[range].crcs.resize(chunks);
      chunks_[range].left = chunks;
    }
  }

  Result<CopiedFiles> run() {
    if (!pass_chunks_.empty()) {
      passes_.emplace(job_, [this](std::uint64_t bytes) { return meter_.add(bytes); });
      packing_.resize(static_cast<std::size_t>(threads_));
    }
    meter_.begin(Phase::kCopy, steps_.bytes);
    TRY(check_model_sources());
    TRY(parallel_for(steps_.items.size(), threads_, [this](std::size_t index, int thread) {
      return take(steps_.items[index], static_cast<std::size_t>(thread));
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
  Status take(const CopyItem& item, std::size_t thread) {
    if (is_pass(item.range)) {
      return copy_pass(item, packing_[thread]);
    }
    const auto shared = shared_.find(range_of(item).file);
    return shared == shared_.end() ? copy_file(item, range_copiers_[thread])
                                   : copy_into(item, shared->second, range_copiers_[thread]);
  }

  bool is_pass(std::uint32_t range) const { return ranges_of_pass(job_.plan, range) > 1; }

  // A model may state any range, so all are checked before room is reserved for them.
  Status check_model_sources() const {
    for (const DataRange& range : job_.plan.ranges) {
      if (tensor_of(range).source != TensorSource::kCheckpoint) {
        TRY(source_of(range));
      }
    }
    return {};
  }

  const DataRange& range_of(const CopyItem& item) const { return job_.plan.ranges[item.range]; }

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

  const PlannedTensor& tensor_of(const DataRange& range) const {
    return job_.plan.tensors[range.source_tensor];
  }

  Result<RangeSource> source_of(const DataRange& range) const {
    return onnx_external::source_of(tensor_of(range), job_.models, job_.checkpoint);
  }

  // Copies an item that is the whole content of its file.
  Status copy_file(const CopyItem& item, RangeCopier& copier) {
    const std::uint32_t file = range_of(item).file;
    TRY_ASSIGN(auto output, create(file));
    TRY_ASSIGN(auto source, source_of(range_of(item)));
    std::optional<Sha> sha;
    if (job_.options.checksum == Checksum::kSha1) {
      sha.emplace(Sha::Kind::kSha1);
    }
    TRY_ASSIGN(const auto crc,
               copier_.copy({item, source, output, false, is_sparse(file), sha ? &*sha : nullptr},
                            copier));
    if (sha) {
      copied_.sha1s[file] = sha->hex();
    }
    TRY(finish_range(item.range, source, crc));
    return syncer_.close(std::move(output), job_.plan.files[file].bytes);
  }

  Status copy_into(const CopyItem& item, SharedFile& file, RangeCopier& copier) {
    TRY_ASSIGN(auto source, source_of(range_of(item)));
    const std::uint32_t number = range_of(item).file;
    TRY_ASSIGN(const OutputFile* const output, open(number, file));
    TRY_ASSIGN(const auto crc,
               copier_.copy({item, source, *output, threads_ > 1, is_sparse(number)}, copier));
    const auto chunks = chunks_.find(item.range);
    Status status = chunks == chunks_.end() ? finish_range(item.range, source, crc)
                                            : finish_chunk(item, chunks->second, source, crc);
    const bool was_last = --file.items_left == 0;
    return status && was_last ? finish_shared(number, file) : status;
  }

  Status copy_pass(const CopyItem& item, PackingBuffers& buffers) {
    const std::size_t parts = ranges_of_pass(job_.plan, item.range);
    std::array<const OutputFile*, kMatrixParts> outputs{};
    for (std::size_t part = 0; part < parts; ++part) {
      const std::uint32_t file = job_.plan.ranges[item.range + part].file;
      TRY_ASSIGN(outputs[part], open(file, shared_.at(file)));
    }
    TRY_ASSIGN(const auto made, passes_->copy(item, std::span(outputs).first(parts), buffers));
    TRY(finish_pass_chunk(item, made));
    for (std::size_t part = 0; part < parts; ++part) {
      const std::uint32_t file = job_.plan.ranges[item.range + part].file;
      SharedFile& shared = shared_.at(file);
      TRY(--shared.items_left == 0 ? finish_shared(file, shared) : Status());
    }
    return {};
  }

  // As finish_chunk(), for each range of the pass.
  Status finish_pass_chunk(const CopyItem& item, const PassResult& made) {
    PassChunks& chunks = pass_chunks_.at(item.range);
    chunks.results[static_cast<std::size_t>(item.first / chunks.bytes)] = made;
    if (--chunks.left > 0) {
      return {};
    }
    const std::uint64_t rows = tensor_of(range_of(item)).packed->rows;
    const std::uint64_t rows_of_chunk = rows_of(job_, {item.range, 0, chunks.bytes}).count;
    QuantizationError error;
    for (const PassResult& chunk : chunks.results) {
      error.add(chunk.error);
    }
    for (std::size_t part = 0; part < ranges_of_pass(job_.plan, item.range); ++part) {
      const auto range = item.range + static_cast<std::uint32_t>(part);
      const std::uint64_t row_bytes = job_.plan.ranges[range].bytes / rows;
      std::uint32_t crc = 0;
      std::uint64_t left = rows;
      for (const PassResult& chunk : chunks.results) {
        const std::uint64_t count = std::min(left, rows_of_chunk);
        crc = crc32_concat(crc, chunk.crcs[part], count * row_bytes);
        left -= count;
      }
      TRY(finish_range(range, {}, crc));
    }
    const std::lock_guard<std::mutex> lock(errors_mutex_);
    copied_.errors.emplace(item.range, error);
    return {};
  }

  Result<OutputFile*> open(std::uint32_t number, SharedFile& file) const {
    return file.data.open([&] { return create(number); });
  }

  // All items of the file are done. Its SHA-1 needs the bytes in order, so they are read again.
  Status finish_shared(std::uint32_t number, SharedFile& file) {
    const std::uint64_t bytes = job_.plan.files[number].bytes;
    auto output = file.data.take();
    if (job_.options.checksum == Checksum::kSha1) {
      TRY_ASSIGN(copied_.sha1s[number], sha1_of(*output, bytes));
    }
    return syncer_.close(*std::move(output), bytes);
  }

  // The thread that ends the last chunk has those of all others.
  Status finish_chunk(const CopyItem& item, Chunks& chunks, const RangeSource& source,
                      std::optional<std::uint32_t> crc) {
    const std::uint64_t chunk_size = chunk_bytes(job_, item.range);
    const auto number = static_cast<std::size_t>(item.first / chunk_size);
    chunks.crcs[number] = crc.value_or(0);  // each chunk is of one thread
    if (--chunks.left > 0) {
      return {};
    }
    std::optional<std::uint32_t> joined;
    if (crc) {
      joined = 0;
      std::uint64_t rest = range_of(item).bytes;
      for (const std::uint32_t chunk : chunks.crcs) {
        const std::uint64_t length = std::min(rest, chunk_size);
        joined = crc32_concat(*joined, chunk, length);
        rest -= length;
      }
    }
    return finish_range(item.range, source, joined);
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
      if (steps_.files[number].done < steps_.files[number].all || steps_.files[number].all == 0) {
        return {};
      }
      TRY_ASSIGN(copied_.sha1s[number], data_file_sha1(job_.data, job_.plan.files[number]));
      return {};
    });
  }

  const CopyJob& job_;
  ProgressMeter& meter_;
  int threads_;
  CopySteps steps_;
  std::vector<RangeCopier> range_copiers_;  // of each thread
  FileSyncer syncer_;
  ItemCopier copier_;
  std::optional<PassCopier> passes_;     // if there is a pass
  std::vector<PackingBuffers> packing_;  // of each thread, then
  std::map<std::uint32_t, SharedFile> shared_;
  std::map<std::uint32_t, Chunks> chunks_;           // of the ranges that were split
  std::map<std::uint32_t, PassChunks> pass_chunks_;  // by the head
  std::mutex errors_mutex_;                          // guards copied_.errors
  CopiedFiles copied_;
};

}  // namespace

Result<std::string> data_file_sha1(const Directory& data, const PlannedFile& planned) {
  TRY_ASSIGN(const auto file, OutputFile::reopen(data, planned.name));
  return sha1_of(file, planned.bytes);
}

Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter) {
  return PlanCopier(job, meter).run();
}

}  // namespace onnx_external
