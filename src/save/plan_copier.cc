#include "save/plan_copier.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/buffer_pool.h"
#include "base/copy_range.h"
#include "base/digest.h"
#include "base/direct_copy.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/inline_data.h"
#include "save/file_syncer.h"
#include "save/part_source.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// A file that several items write: the first one opens it, the last one closes it.
struct SharedFile {
  std::mutex mutex;
  std::optional<OutputFile> output;
  std::optional<Error>
      error;  // why there is none: a second try would only find the first one's file
  std::atomic<std::size_t> items_left{0};
};

// The pieces of a part that was split.
struct Chunks {
  std::vector<std::uint32_t> crcs;
  std::atomic<std::size_t> left{0};
};

// The files of a batch, from their creation until they are filled.
struct Batch {
  std::mutex mutex;
  bool tried = false;
  std::optional<Error> error;  // of the creation
  std::vector<OutputFile> outputs;
};

// What one thread keeps between its steps.
struct Worker {
  RangeCopier copier;
  DirectCopier direct;
};

// Adds a range of what was written.
Status add_range(const OutputFile& file, std::uint64_t first, std::uint64_t bytes, Sha& sha) {
  IoBuffer buffer;
  for (std::uint64_t done = 0; done < bytes;) {
    const auto piece = buffer.first(std::min<std::uint64_t>(kCopyBufferBytes, bytes - done));
    TRY(read_exact(file.fd(), first + done, piece, file.name()));
    sha.update(piece);
    done += piece.size();
  }
  return {};
}

Result<std::string> sha1_of(const OutputFile& file, std::uint64_t bytes) {
  Sha sha(Sha::Kind::kSha1);
  TRY(add_range(file, 0, bytes, sha));
  return sha.hex();
}

// How many files this process may hold open, and for what.
struct FileRoom {
  std::size_t batches = 0;  // 0: no batches, for half of the room stays for others
  std::size_t waiting = 0;  // for the disk
};

FileRoom share_room(const CopyJob& job, int threads) {
  constexpr std::size_t kOthers = 64;
  constexpr std::size_t kPerThread = 8;
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t taken = job.checkpoint.files().size() + kOthers + kPerThread * count;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= taken) {
    return {};
  }
  const std::size_t room = static_cast<std::size_t>(limit.rlim_cur) - taken;
  // Each thread has a batch at most, and one waits between two threads.
  const std::size_t wanted = kFilesInBatch * (count + 1);
  const std::size_t batches = wanted <= room / 2 ? wanted : 0;
  return {batches, room - batches};
}

class PlanCopier {
 public:
  PlanCopier(const CopyJob& job, ProgressMeter& meter)
      : job_(job),
        meter_(meter),
        threads_(thread_count(job.options.threads)),
        room_(share_room(job, threads_)),
        steps_(plan_copy(job, threads_, room_.batches > 0)),
        workers_(static_cast<std::size_t>(threads_)),
        batches_(steps_.batches()),
        syncer_(job.options.sync, job.plan.files.size() - job.plan.kept.size(), room_.waiting),
        step_([&meter](std::uint64_t bytes) { return meter.add(bytes); }) {
    copied_.crcs.resize(job.plan.parts.size());
    copied_.sha1s.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.parts.size(); ++i) {
      copied_.crcs[i] = job.is_of_others(i) ? 0 : job.kept[i].value_or(0);
    }
    for (const auto& [file, items] : steps_.shared) {
      shared_[file].items_left = items;
    }
    for (const auto& [part, pieces] : steps_.split) {
      chunks_[part].crcs.resize(pieces);
      chunks_[part].left = pieces;
    }
  }

  Result<CopiedFiles> run() {
    meter_.begin(Phase::kCopy, steps_.bytes);
    Status status = check_model_sources();
    if (status) {
      const auto take_step = [this](std::size_t index, int thread) {
        return take(steps_.steps[index], workers_[static_cast<std::size_t>(thread)]);
      };
      status = parallel_for(steps_.steps.size(), threads_, take_step,
                            [this] { return job_.own ? job_.own() : Status(); });
    }
    if (status) {
      status = add_checksums_of_kept_files();
    }
    if (status) {
      status = meter_.finish();
    }
    if (status) {
      status = syncer_.finish(job_.data, job_.plan.bytes, threads_, meter_);
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return std::move(copied_);
  }

 private:
  Status take(const CopyStep& step, Worker& worker) {
    if (step.kind == CopyStep::Kind::kCreate) {
      return create_batch(step.number);
    }
    if (step.kind == CopyStep::Kind::kFill) {
      return fill_batch(step.number, worker);
    }
    const CopyItem& item = steps_.items[step.number];
    const auto shared = shared_.find(part_of(item).file);
    return shared == shared_.end() ? copy_file(item, worker)
                                   : copy_into(item, shared->second, worker);
  }

  // The model only states its ranges: none is reserved before all are known to exist.
  Status check_model_sources() const {
    for (std::uint32_t part = 0; part < job_.plan.parts.size(); ++part) {
      if (is_from_checkpoint(part)) {
        continue;
      }
      TRY(source_of(part));
    }
    return {};
  }

  const PlannedPart& part_of(const CopyItem& item) const { return job_.plan.parts[item.part]; }

  const PlannedTensor& tensor_of(std::uint32_t part) const {
    return job_.plan.tensors[job_.plan.parts[part].source_tensor];
  }

  // Of a file that was there before nobody knows that it has zeros where nothing is written.
  bool is_sparse(std::uint32_t file) const {
    return !job_.sparse.empty() && job_.sparse[file] && steps_.files[file].kept == 0 &&
           steps_.files[file].of_others == 0;
  }

  bool is_from_checkpoint(std::uint32_t part) const {
    return tensor_of(part).source == TensorSource::kCheckpoint;
  }

  Result<OutputFile> create(std::uint32_t file) const {
    const PlannedFile& planned = job_.plan.files[file];
    const bool exists = steps_.files[file].kept > 0 || steps_.files[file].of_others > 0;
    TRY_ASSIGN(auto output, exists ? OutputFile::reopen(job_.data, planned.name)
                                   : OutputFile::create(job_.data, planned.name));
    TRY(is_sparse(file) ? output.grow(planned.bytes) : output.preallocate(planned.bytes));
    return output;
  }

  Result<PartSource> source_of(std::uint32_t part) const {
    return onnx_external::source_of(tensor_of(part), job_.model, job_.checkpoint);
  }

  // Copies the item's bytes, but for holes, and returns their CRC-32, unless they are spliced.
  Result<std::optional<std::uint32_t>> copy_bytes(const CopyItem& item, const PartSource& source,
                                                  const OutputFile& output, Worker& worker,
                                                  Sha* sha) {
    if (!source.file || !is_sparse(part_of(item).file) || item.length < kMinHoleBytes) {
      return copy_run(item, source, output, worker, sha);
    }
    std::optional<std::uint32_t> crc = 0;
    for (std::uint64_t done = 0; done < item.length;) {
      const std::uint64_t place = source.offset + item.first;
      const FileRun run = next_run(source.file->fd(), place + done, place + item.length);
      const CopyItem piece{item.part, item.first + done, run.bytes};
      TRY_ASSIGN(const auto added, run.is_hole ? pass_hole(piece, source, sha)
                                               : copy_run(piece, source, output, worker, sha));
      crc = added ? std::optional(crc32_concat(crc.value_or(0), *added, run.bytes)) : added;
      done += run.bytes;
    }
    return crc;
  }

  // The file has zeros there already.
  Result<std::optional<std::uint32_t>> pass_hole(const CopyItem& item, const PartSource& source,
                                                 Sha* sha) {
    static constexpr std::array<std::byte, kCopyBufferBytes> kZeros{};
    for (std::uint64_t left = sha == nullptr ? 0 : item.length; left > 0;) {
      const auto piece = std::span(kZeros).first(std::min<std::uint64_t>(left, kZeros.size()));
      sha->update(piece);
      left -= piece.size();
    }
    if (!step_(item.length)) {
      return cancelled();
    }
    const bool spliced = sha == nullptr && splices(item, source);
    return spliced ? std::nullopt : std::optional(crc32_of_zeros(item.length));
  }

  Result<std::optional<std::uint32_t>> copy_run(const CopyItem& item, const PartSource& source,
                                                const OutputFile& output, Worker& worker,
                                                Sha* sha) {
    Crc32 crc;
    Status status;
    const bool spliced = sha == nullptr && splices(item, source);
    const std::uint64_t place = part_of(item).offset + item.first;
    if (!source.file) {
      status = tensor_of(item.part).source == TensorSource::kModelInline
                   ? decode(item, output, crc, sha)
                   : rearrange(item, output, crc, sha);
    } else if (bypasses_cache()) {
      status = worker.direct.copy(*source.file, source.offset + item.first, item.length, output,
                                  place, step_, crc, sha);
    } else if (spliced) {
      status = worker.copier.copy(*source.file, source.offset + item.first, item.length, output,
                                  place, step_);
    } else {
      status = worker.copier.copy_with_digests(*source.file, source.offset + item.first,
                                               item.length, output, place, step_, crc, sha);
    }
    if (status && source.file && !is_from_checkpoint(item.part)) {
      status = source.file->check_unchanged();
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return spliced ? std::nullopt : std::optional(crc.value());
  }

  // In the model file, which is never large, neighbours share blocks.
  bool bypasses_cache() const {
    return job_.options.cache == PageCache::kBypass && job_.plan.layout != Layout::kInline;
  }

  // A record whose CRC is known is moved inside the kernel; the read-back proves it. Below the
  // buffer's size the buffer costs no more, and checks the CRC at once. Threads that share a file
  // wait for its lock while they splice: with buffers they read at the same time at least. All
  // chunks of a part are copied in one way.
  bool splices(const CopyItem& item, const PartSource& source) const {
    const bool waits = threads_ > 1 && shared_.contains(part_of(item).file);
    return source.recorded_crc && part_of(item).bytes > kCopyBufferBytes && !waits &&
           job_.options.cache == PageCache::kUse;
  }

  Status rearrange(const CopyItem& item, const OutputFile& output, Crc32& crc, Sha* sha) {
    const PlannedTensor& tensor = tensor_of(item.part);
    if (const auto tiles = planned_tiles(job_.checkpoint, tensor)) {
      return write_tiles(item, *tiles, output, crc, sha);
    }
    const auto read = [&](std::uint64_t done, std::span<std::byte> piece) {
      return read_planned(job_.checkpoint, tensor, item.first + done, piece);
    };
    return write_pieces(item, read, output, crc, sha);
  }

  // A SHA needs the bytes in their order, so they are read again.
  Status write_tiles(const CopyItem& item, const TiledView& tiles, const OutputFile& output,
                     Crc32& crc, Sha* sha) {
    BufferPool::Lease buffer(buffers_);
    const std::uint64_t place = part_of(item).offset;
    std::uint64_t unreported = 0;
    TRY_ASSIGN(const auto written,
               tiles.read(item.first, item.length, *buffer,
                          [&](std::uint64_t at, std::span<const std::byte> run) {
                            Status status = output.write(place + at, run);
                            unreported += run.size();
                            if (!status || unreported < kRearrangeBytes) {
                              return status;
                            }
                            return step_(std::exchange(unreported, 0)) ? Status() : cancelled();
                          }));
    crc = Crc32(written);
    if (!step_(unreported)) {
      return cancelled();
    }
    return sha == nullptr ? Status() : add_range(output, place + item.first, item.length, *sha);
  }

  Status decode(const CopyItem& item, const OutputFile& output, Crc32& crc, Sha* sha) {
    const PlannedTensor& tensor = tensor_of(item.part);
    auto reader = InlineReader::open(job_.model, tensor.source_index);
    Status status = reader ? Status() : Status(fail(reader.error()));
    if (status) {
      const auto read = [&](std::uint64_t, std::span<std::byte> piece) {
        return reader->read(piece);
      };
      status = write_pieces(item, read, output, crc, sha);
    }
    if (status || status.error().code == ErrorCode::kCancelled) {
      return status;
    }
    return fail_in("tensor " + quote(tensor.name), std::move(status).error());
  }

  // read(done, piece) fills the piece with the item's bytes from `done` on.
  template <typename Read>
  Status write_pieces(const CopyItem& item, const Read& read, const OutputFile& output, Crc32& crc,
                      Sha* sha) {
    BufferPool::Lease buffer(buffers_);
    const std::uint64_t place = part_of(item).offset + item.first;
    for (std::uint64_t done = 0; done < item.length;) {
      const std::uint64_t count = std::min(kRearrangeBytes, item.length - done);
      const std::span<std::byte> piece = (*buffer).first(count);
      TRY(read(done, piece));
      crc.update(piece);
      if (sha != nullptr) {
        sha->update(piece);
      }
      TRY(output.write(place + done, piece));
      done += count;
      if (!step_(count)) {
        return cancelled();
      }
    }
    return {};
  }

  // Whoever comes second waits for the first, and gets the same answer.
  Status create_batch(std::size_t number) {
    Batch& batch = batches_[number];
    const std::lock_guard<std::mutex> lock(batch.mutex);
    if (!batch.tried) {
      batch.tried = true;
      batch.error.emplace(Error{ErrorCode::kIo, "out of memory"});  // should anything here throw
      batch.error = open_all(steps_.batch(number), batch.outputs);
    }
    return batch.error ? Status(fail(Error(*batch.error))) : Status();
  }

  std::optional<Error> open_all(std::span<const CopyItem> items,
                                std::vector<OutputFile>& outputs) const {
    outputs.reserve(items.size());
    for (const CopyItem& item : items) {
      auto output = create(part_of(item).file);
      if (!output) {
        return std::move(output).error();
      }
      outputs.push_back(*std::move(output));
    }
    return std::nullopt;
  }

  Status fill_batch(std::size_t number, Worker& worker) {
    Status status = create_batch(number);
    const auto items = steps_.batch(number);
    std::vector<OutputFile> outputs = std::move(batches_[number].outputs);
    for (std::size_t i = 0; i < items.size() && status; ++i) {
      status = fill_file(items[i], std::move(outputs[i]), worker);
    }
    return status;
  }

  // An item that is all there is in its file.
  Status copy_file(const CopyItem& item, Worker& worker) {
    TRY_ASSIGN(auto output, create(part_of(item).file));
    return fill_file(item, std::move(output), worker);
  }

  Status fill_file(const CopyItem& item, OutputFile output, Worker& worker) {
    const std::uint32_t file = part_of(item).file;
    TRY_ASSIGN(auto source, source_of(item.part));
    std::optional<Sha> sha;
    if (job_.options.checksum == Checksum::kSha1) {
      sha.emplace(Sha::Kind::kSha1);
    }
    TRY_ASSIGN(const auto crc, copy_bytes(item, source, output, worker, sha ? &*sha : nullptr));
    if (sha) {
      copied_.sha1s[file] = sha->hex();
    }
    Status status = finish_part(item.part, source, crc);
    return status ? syncer_.close(std::move(output), job_.plan.files[file].bytes) : status;
  }

  Status copy_into(const CopyItem& item, SharedFile& file, Worker& worker) {
    TRY_ASSIGN(auto source, source_of(item.part));
    TRY(open_once(part_of(item).file, file));
    TRY_ASSIGN(const auto crc, copy_bytes(item, source, *file.output, worker, nullptr));
    const auto chunks = chunks_.find(item.part);
    Status status = chunks == chunks_.end() ? finish_part(item.part, source, crc)
                                            : finish_chunk(item, chunks->second, source, crc);
    const bool was_last = --file.items_left == 0;
    return status && was_last ? finish_shared(part_of(item).file, file) : status;
  }

  Status open_once(std::uint32_t number, SharedFile& file) const {
    const std::lock_guard<std::mutex> lock(file.mutex);
    if (file.output || file.error) {
      return file.error ? Status(fail(Error(*file.error))) : Status();
    }
    auto output = create(number);
    if (!output) {
      file.error = output.error();
      return fail(std::move(output).error());
    }
    file.output.emplace(*std::move(output));
    return {};
  }

  // All items of the file are done. Its SHA-1 needs the bytes in order, so they are read again.
  Status finish_shared(std::uint32_t number, SharedFile& file) {
    const std::uint64_t bytes = job_.plan.files[number].bytes;
    if (job_.options.checksum == Checksum::kSha1 && steps_.files[number].of_others == 0) {
      TRY_ASSIGN(auto sha1, sha1_of(*file.output, bytes));
      copied_.sha1s[number] = std::move(sha1);
    }
    Status status = syncer_.close(*std::move(file.output), bytes);
    file.output.reset();
    return status;
  }

  // The thread that ends the last chunk has those of all others.
  Status finish_chunk(const CopyItem& item, Chunks& chunks, const PartSource& source,
                      std::optional<std::uint32_t> crc) {
    const std::uint64_t chunk_size = chunk_bytes(job_, item.part);
    const auto number = static_cast<std::size_t>(item.first / chunk_size);
    chunks.crcs[number] = crc.value_or(0);  // each chunk is of one thread
    if (--chunks.left > 0) {
      return {};
    }
    std::optional<std::uint32_t> joined;
    if (crc) {
      joined = 0;
      std::uint64_t rest = part_of(item).bytes;
      for (const std::uint32_t chunk : chunks.crcs) {
        const std::uint64_t length = std::min(rest, chunk_size);
        joined = crc32_concat(*joined, chunk, length);
        rest -= length;
      }
    }
    return finish_part(item.part, source, joined);
  }

  // All bytes of the part are in its file.
  Status finish_part(std::uint32_t part, const PartSource& source,
                     std::optional<std::uint32_t> computed) {
    if (computed && source.recorded_crc && *computed != *source.recorded_crc) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: byte {}: the CRC-32 of the {} bytes is {}, but the file "
                              "records {}; it is damaged",
                              source.file->name(), source.offset, job_.plan.parts[part].bytes,
                              hex_text(*computed), hex_text(*source.recorded_crc)));
    }
    copied_.crcs[part] = computed ? *computed : source.recorded_crc.value_or(0);
    return job_.journal == nullptr
               ? Status()
               : job_.journal->add(part, copied_.crcs[part], job_.plan.parts[part].bytes);
  }

  Status add_checksums_of_kept_files() {
    if (job_.options.checksum == Checksum::kNone) {
      return {};
    }
    return parallel_for(steps_.files.size(), threads_, [this](std::size_t number, int) -> Status {
      if (steps_.files[number].kept < steps_.files[number].all || steps_.files[number].all == 0) {
        return {};
      }
      const auto old = job_.plan.kept.find(static_cast<std::uint32_t>(number));
      if (old != job_.plan.kept.end()) {
        copied_.sha1s[number] = old->second.sha1;
        return {};
      }
      TRY_ASSIGN(auto sha1, data_file_sha1(job_.data, job_.plan.files[number]));
      copied_.sha1s[number] = std::move(sha1);
      return {};
    });
  }

  const CopyJob& job_;
  ProgressMeter& meter_;
  int threads_;
  FileRoom room_;
  CopySteps steps_;
  std::vector<Worker> workers_;
  std::vector<Batch> batches_;
  FileSyncer syncer_;
  StepFn step_;
  std::map<std::uint32_t, SharedFile> shared_;
  std::map<std::uint32_t, Chunks> chunks_;  // of the parts that were split
  CopiedFiles copied_;
  BufferPool buffers_{kMaxTiles};
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
