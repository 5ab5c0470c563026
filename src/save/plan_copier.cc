#include "save/plan_copier.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/read_step.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/inline_data.h"
#include "save/file_syncer.h"
#include "save/row_packer.h"

namespace onnx_external {
namespace {

// --- order ---------------------------------------------------------------------------------------

std::vector<Pass> copy_order(const SavePlan& plan) {
  using Rank = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  std::vector<std::pair<Rank, Pass>> ranked;
  std::uint64_t place = 0;  // of the pass in its file
  for (const Pass& pass : passes_of(plan)) {
    const DataRange& head = plan.ranges[pass.head];
    place = head.offset == 0 ? 0 : place + 1;
    ranked.emplace_back(plan.layout == Layout::kPerTensor
                            ? Rank{std::numeric_limits<std::uint64_t>::max() - head.bytes, 0, 0}
                            : Rank{head.file / kShardsAtOnce, place, head.file},
                        pass);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Pass> order;
  for (const auto& [rank, pass] : ranked) {
    order.push_back(pass);
  }
  return order;
}

class StepPlanner {
 public:
  StepPlanner(const CopyJob& job, int threads) : job_(job), threads_(threads) {
    out_.files.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.ranges.size(); ++i) {
      FileSteps& file = out_.files[job.plan.ranges[i].file];
      ++file.ranges;
      file.done += job.done[i] ? 1 : 0;
    }
  }

  CopySteps plan() && {
    std::vector<Pass> passes = copy_order(job_.plan);
    std::erase_if(passes, [&](const Pass& pass) { return is_done(pass); });
    for (const Pass& pass : passes) {
      for (std::uint32_t n = 0; n < pass.ranges; ++n) {
        out_.bytes += job_.plan.ranges[pass.head + n].bytes;
      }
    }
    for (const Pass& pass : passes) {
      add(pass);
    }
    return std::move(out_);
  }

 private:
  bool is_done(const Pass& pass) const {
    const auto first = job_.done.begin() + pass.head;
    return std::all_of(first, first + pass.ranges, [](const auto& crc) { return crc.has_value(); });
  }

  void add(const Pass& pass) {
    const std::uint64_t bytes = job_.plan.ranges[pass.head].bytes;
    const std::uint64_t most = chunk_bytes(pass);
    const std::size_t before = out_.steps.size();
    std::uint64_t first = 0;
    do {  // an empty range is also an item
      const std::uint64_t length = std::min(most, bytes - first);
      out_.steps.push_back({out_.passes.size(), {pass.head, first, length}});
      first += length;
    } while (first < bytes);
    const std::size_t chunks = out_.steps.size() - before;
    out_.passes.push_back({pass, most, chunks});
    for (std::uint32_t n = 0; n < pass.ranges; ++n) {
      out_.files[job_.plan.ranges[pass.head + n].file].items += chunks;
    }
  }

  // Does not depend on the number of threads if a matrix is quantized, so that errors are always
  // summed in the same order.
  std::uint64_t chunk_bytes(const Pass& pass) const {
    const PlannedTensor& tensor = tensor_of(job_.plan, pass.head);
    // LazyBytes are not split, because only the thread that holds them can copy them.
    const bool is_whole = kind_of_source(job_.checkpoint, tensor) == StorageKind::kMade ||
                          (pass.ranges == 1 && !is_worth_splitting(pass.head));
    if (is_whole) {
      return job_.plan.ranges[pass.head].bytes;
    }
    if (pass.ranges > 1) {
      const DerivedView view = planned_view(job_.checkpoint, tensor);
      const RowPacker rows(job_.checkpoint, *view, tensor.cast_to, *tensor.packed);
      return rows.chunk_rows(kPassChunkBytes) * rows.row_bytes(tensor.packed->part);
    }
    const auto tiles = planned_tiles(job_.checkpoint, tensor);
    return tiles ? tiles->chunk_bytes(kCopyChunkBytes) : kCopyChunkBytes;
  }

  // One thread splices faster than several fill a file through buffers (kCopyChunkBytes). Inline
  // numbers of the model that are not raw bytes yet must be decoded in order.
  bool is_worth_splitting(std::uint32_t range) const {
    const std::uint64_t bytes = job_.plan.ranges[range].bytes;
    if (threads_ == 1 || bytes <= kCopyChunkBytes) {
      return false;
    }
    const PlannedTensor& tensor = tensor_of(job_.plan, range);
    if (tensor.source == TensorSource::kModelInline &&
        !inline_range(job_.models.of(tensor), tensor.source_index)) {
      return false;
    }
    const bool has_own_file = out_.files[job_.plan.ranges[range].file].ranges == 1;
    const bool may_be_spliced = recorded_crc_of(job_.checkpoint, tensor).has_value();
    const std::uint64_t fair_share = out_.bytes / static_cast<std::uint64_t>(threads_);
    return !has_own_file || (bytes > fair_share && !may_be_spliced);
  }

  const CopyJob& job_;
  int threads_;
  CopySteps out_;
};

// --- copying -------------------------------------------------------------------------------------

// A file of the plan that is being written.
struct FileInWork {
  DataFile data;
  std::atomic<std::size_t> items_left{0};
};

// A pass that is being written.
struct PassInWork {
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
        copier_(job.plan, job.models, job.checkpoint,
                [&meter](std::uint64_t bytes) { return meter.add(bytes); }),
        files_(job.plan.files.size()),
        passes_(steps_.passes.size()) {
    copied_.crcs.resize(job.plan.ranges.size());
    copied_.infinite.resize(job.plan.ranges.size());
    copied_.sha1s.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.ranges.size(); ++i) {
      copied_.crcs[i] = job.done[i].value_or(0);
    }
    for (std::size_t file = 0; file < files_.size(); ++file) {
      files_[file].items_left = steps_.files[file].items;
    }
    for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
      passes_[pass].copied.resize(steps_.passes[pass].chunks);
      passes_[pass].left = steps_.passes[pass].chunks;
    }
  }

  Result<CopiedFiles> run() {
    meter_.begin(Phase::kCopy, steps_.bytes);
    TRY(check_model_sources());
    TRY(parallel_for(steps_.steps.size(), threads_, [this](std::size_t index, int thread) {
      return copy(steps_.steps[index], buffers_[static_cast<std::size_t>(thread)]);
    }));
    for (std::size_t i = 0; i < copied_.infinite.size(); ++i) {
      copied_.infinite[i] = job_.done[i].has_value() || copier_.gave_infinity(i);
    }
    sum_errors();
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

  Status copy(const CopyStep& step, CopyBuffers& buffers) {
    const Pass& pass = steps_.passes[step.pass].pass;
    const std::uint32_t head_file = file_of(pass.head);
    TRY_ASSIGN(const auto source, source_of(pass.head));
    std::array<const OutputFile*, kMatrixParts> outputs{};
    for (std::uint32_t n = 0; n < pass.ranges; ++n) {
      const std::uint32_t file = file_of(pass.head + n);
      TRY_ASSIGN(outputs[n], files_[file].data.open([&] { return create(file); }));
    }
    const FileSteps& steps = steps_.files[head_file];
    const bool is_shared = threads_ > 1 && (steps.ranges > 1 || steps.items > 1);
    TRY_ASSIGN(auto copied, copier_.copy({step.item, source, std::span(outputs).first(pass.ranges),
                                          is_shared, is_sparse(head_file)},
                                         buffers));
    const auto written = copied.bytes;
    TRY(finish_item(step, source, std::move(copied)));
    for (std::uint32_t n = 0; n < pass.ranges; ++n) {
      const std::uint32_t file = file_of(pass.head + n);
      syncer_.add_written(files_[file].data, *outputs[n], written[n]);
      TRY(--files_[file].items_left == 0 ? finish_file(file) : Status());
    }
    return {};
  }

  Status finish_item(const CopyStep& step, const RangeSource& source, CopiedItem copied) {
    const SplitPass& split = steps_.passes[step.pass];
    PassInWork& work = passes_[step.pass];
    const std::uint64_t chunk = split.chunks > 1 ? step.item.first / split.chunk_bytes : 0;
    work.copied[static_cast<std::size_t>(chunk)] = std::move(copied);
    return --work.left == 0 ? finish_pass(split.pass, source, work.copied) : Status();
  }

  // Joins the CRCs of the chunks after all chunks were copied.
  Status finish_pass(const Pass& pass, const RangeSource& source,
                     const std::vector<CopiedItem>& chunks) {
    for (std::uint32_t n = 0; n < pass.ranges; ++n) {
      std::optional<std::uint32_t> crc = chunks.front().crcs[n];
      for (std::size_t i = 1; crc && i < chunks.size(); ++i) {  // all were moved in one way
        crc = crc32_concat(*crc, *chunks[i].crcs[n], chunks[i].bytes[n]);
      }
      TRY(finish_range(pass.head + n, source, crc));
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
                  fmt::format("{}: byte {}: the CRC-32 of the {} bytes is {}, but the file records "
                              "{}; the file is damaged",
                              source.file->name(), source.offset, job_.plan.ranges[range].bytes,
                              hex_text(*computed), hex_text(*source.recorded_crc)));
    }
    copied_.crcs[range] = computed ? *computed : source.recorded_crc.value_or(0);
    return job_.record == nullptr
               ? Status()
               : job_.record->add(range, copied_.crcs[range], job_.plan.ranges[range].bytes);
  }

  void sum_errors() {
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const Pass& pass = steps_.passes[i].pass;
      for (std::size_t chunk = 0; pass.ranges > 1 && chunk < passes_[i].copied.size(); ++chunk) {
        copied_.errors[pass.head].add(passes_[i].copied[chunk].error);
      }
    }
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
  std::vector<FileInWork> files_;   // same indices as SavePlan::files
  std::vector<PassInWork> passes_;  // same indices as CopySteps::passes
  CopiedFiles copied_;
};

}  // namespace

CopySteps plan_copy(const CopyJob& job, int threads) {
  return StepPlanner(job, threads).plan();
}

Result<CopiedFiles> copy_files(const CopyJob& job, ProgressMeter& meter) {
  return PlanCopier(job, meter).run();
}

}  // namespace onnx_external
