#include "verify/range_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/buffer_pool.h"
#include "base/checked_math.h"
#include "base/digest.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/foreign_format.h"
#include "base/io_buffer.h"
#include "base/parallel.h"
#include "base/read_back.h"
#include "base/read_step.h"
#include "base/safe_path.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "evidence/read_budget.h"
#include "save/planned_bytes.h"
#include "verify/matrix_check.h"
#include "verify/range_plan.h"

namespace onnx_external {
namespace {

// The expected bytes of a range.
struct WantedBytes {
  const WantedTensor* tensor = nullptr;  // null: nothing
  const SourceFile* file = nullptr;      // with exactly these bytes; null if there is none
  std::uint64_t offset = 0;              // in `file`
};

WantedBytes find_wanted(const Checkpoint* checkpoint, const RangeCheck& check) {
  WantedBytes wanted{.tensor = check.equals ? &*check.equals : nullptr};
  if (const auto range = check.equals ? linked_range(*checkpoint, *check.equals) : std::nullopt) {
    wanted.file = CheckpointAccess::files(*checkpoint)[range->file].get();
    wanted.offset = range->offset;
  }
  return wanted;
}

class ChunkReader {
 public:
  ChunkReader(const RangeCheck& check, const CheckChunk& chunk, const Checkpoint* checkpoint,
              const VerifyOptions& options, BufferPool& tiles, CheckedFiles& checked)
      : check_(check),
        chunk_(chunk),
        checkpoint_(checkpoint),
        options_(options),
        tiles_(tiles),
        checked_(checked) {}

  // Reads the chunk; an error of the data file becomes answer.fault.
  [[nodiscard]] Status run(const Directory& folder, ByteComparer& comparer, ProgressMeter& meter,
                           RangeAnswer& answer) const {
    const auto file = open_range(folder, check_, checked_, answer);
    if (file == nullptr) {
      return meter.step(chunk_.length);
    }
    WantedBytes wanted = find_wanted(checkpoint_, check_);
    answer.own =
        wanted.file != nullptr && wanted.offset == check_.offset && wanted.file->same_file(*file);
    if (options_.compare == Compare::kPlaces) {
      if (wanted.tensor != nullptr && !answer.own) {
        answer.fault = {FindingCode::kBytesDiffer, "its range differs from that in the checkpoint"};
      }
      return meter.step(chunk_.length);
    }
    if (answer.own) {
      wanted = {};  // comparing it with itself proves nothing
    }
    if (options_.drop_cache == DropCache::kYes) {
      drop_pages(file->fd(), check_.offset + chunk_.first, chunk_.length);
    }
    TRY_ASSIGN(const auto held, wanted.tensor != nullptr
                                    ? hold_planned(*checkpoint_, *wanted.tensor)
                                    : MemoryRuns::Held());
    const auto tiles =
        wanted.tensor != nullptr ? planned_tiles(*checkpoint_, *wanted.tensor) : std::nullopt;
    return tiles ? read_tiles(*file, *tiles, comparer, meter, answer)
                 : read(*file, wanted, comparer, meter, answer);
  }

 private:
  [[nodiscard]] Status read(const SourceFile& file, const WantedBytes& wanted,
                            ByteComparer& comparer, ProgressMeter& meter,
                            RangeAnswer& answer) const {
    ExpectedBytes expected{{}, wanted.file, wanted.offset};
    if (wanted.file != nullptr) {
      expected.give = bytes_in_file(*wanted.file, wanted.offset);
    } else if (wanted.tensor != nullptr) {
      expected.step = kReadStepBytes;
      expected.give = bytes_read_by([&](std::uint64_t at, std::span<std::byte> room) {
        return read_planned(*checkpoint_, *wanted.tensor, at, room);
      });
    }
    const bool wants_crc = check_.wants_crc || answer.own;
    TRY_ASSIGN(auto read,
               read_back({file, check_.offset, chunk_.first, chunk_.length, wants_crc}, expected,
                         comparer, [&](std::uint64_t bytes) { return meter.step(bytes); }));
    if (read.unreadable) {
      answer.fault = fault_of(*read.unreadable);
    }
    answer.difference = read.difference;
    answer.crc32 = read.crc32;
    return {};
  }

  static void note(const Comparison& compared, RangeAnswer& answer) {
    if (compared.unreadable) {
      answer.fault = fault_of(*compared.unreadable);
    }
    const auto& difference = compared.difference;
    if (difference && (!answer.difference || difference->byte < answer.difference->byte)) {
      answer.difference = difference;
    }
  }

  // Reads the file in the order of the tiles in which the expected bytes are computed.
  [[nodiscard]] Status read_tiles(const SourceFile& file, const TiledView& tiles,
                                  ByteComparer& comparer, ProgressMeter& meter,
                                  RangeAnswer& answer) const {
    BufferPool::Lease tile(tiles_);
    std::uint64_t done = 0;
    const auto compare = [&](std::uint64_t first, std::span<const std::byte> run) -> Status {
      const auto take = [&](std::span<const std::byte> chunk) {
        done += chunk.size();
        return meter.step(chunk.size());
      };
      TRY_ASSIGN(const auto compared, comparer.compare(first, run.size(),
                                                       {bytes_in_file(file, check_.offset),
                                                        bytes_in_memory(first, run), take},
                                                       AtDifference::kReadOn, kReadBackStep));
      note(compared, answer);
      return compared.unreadable ? fail(*compared.unreadable) : Status();
    };
    std::uint32_t expected = 0;
    const Status read = tiles.read(chunk_.first, chunk_.length, *tile, compare, &expected);
    Result<std::uint32_t> crc = read ? Result<std::uint32_t>(expected) : fail(read.error());
    if (answer.fault) {
      return meter.step(chunk_.length - done);
    }
    if (crc && answer.difference && check_.wants_crc) {
      crc = range_crc32(file, check_.offset + chunk_.first, chunk_.length);
    }
    answer.crc32 = crc.value_or(0);
    return crc ? Status() : fail(crc.error());
  }

  const RangeCheck& check_;
  const CheckChunk& chunk_;
  const Checkpoint* checkpoint_;
  const VerifyOptions& options_;
  BufferPool& tiles_;
  CheckedFiles& checked_;
};

// Chunks of one range come in order: the first fault and the first difference are the range's.
void join(RangeAnswer& range, const CheckChunk& chunk, RangeAnswer answer) {
  if (!range.fault) {
    range.fault = std::move(answer.fault);
  }
  if (!range.difference) {
    range.difference = answer.difference;
  }
  range.own = range.own || answer.own;
  range.hard_links = range.hard_links || answer.hard_links;
  range.hub_link = range.hub_link || answer.hub_link;
  range.crc32 = crc32_concat(range.crc32, answer.crc32, chunk.length);
}

Result<std::vector<RangeAnswer>> read_ranges(const std::filesystem::path& folder,
                                             std::span<const RangeCheck> checks,
                                             const Checkpoint* checkpoint,
                                             const VerifyOptions& options, ProgressMeter& meter) {
  TRY_ASSIGN(const auto directory, Directory::open(folder));
  const std::set<std::string_view> overused = overused_files(directory, checks);
  const CheckWork work = cut_checks(directory, checks, checkpoint, options, overused);
  const std::vector<CheckChunk>& chunks = work.chunks;
  std::vector<RangeAnswer> answers(chunks.size());
  std::uint64_t bytes = 0;
  for (const CheckChunk& chunk : chunks) {
    bytes += chunk.length;
  }
  const int threads = thread_count(options.threads, bytes);
  std::vector<ByteComparer> comparers(static_cast<std::size_t>(threads));
  BufferPool tiles(kMaxTiles);
  CheckedFiles checked;
  std::vector<PackingBuffers> buffers(static_cast<std::size_t>(threads));
  const auto read = [&](std::size_t number, int thread) {
    const auto [i, parts] = work.tasks[number];
    ByteComparer& comparer = comparers[static_cast<std::size_t>(thread)];
    if (parts > 1) {
      std::vector<const RangeCheck*> of_matrix;
      for (std::size_t part = 0; part < parts; ++part) {
        of_matrix.push_back(&checks[chunks[i + part].check]);
      }
      const std::uint64_t row_bytes = part_row_bytes(*of_matrix.front()->equals);
      return check_matrix(directory, of_matrix, chunks[i].first / row_bytes,
                          chunks[i].length / row_bytes,
                          {*checkpoint, options, comparer,
                           buffers[static_cast<std::size_t>(thread)], tiles, checked, meter},
                          std::span(answers).subspan(i, parts));
    }
    const ChunkReader reader(checks[chunks[i].check], chunks[i], checkpoint, options, tiles,
                             checked);
    return reader.run(directory, comparer, meter, answers[i]);
  };
  // To compare places takes less time than an OpenMP region (2 GB, linked: 3 % of the save).
  TRY(options.compare == Compare::kPlaces ? parallel_tasks(work.tasks.size(), threads, read)
                                          : parallel_for(work.tasks.size(), threads, read));
  std::vector<RangeAnswer> ranges(checks.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (overused.contains(checks[i].location)) {
      ranges[i].fault = {FindingCode::kBadEntry,
                         "the model's ranges in this file add up to more than " +
                             std::to_string(kMaxTimesRead) + " times its size, so it was not read"};
    }
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    join(ranges[chunks[i].check], chunks[i], std::move(answers[i]));
  }
  return ranges;
}

// Reduces a check to the CRC of its range, without a comparison.
void check_by_crc_alone(RangeCheck& check) {
  check.equals.reset();
  check.wants_crc = true;
}

// By the checkpoint, or while the range was written.
std::optional<std::uint32_t> known_crc(const RangeCheck& check, const Checkpoint* checkpoint) {
  if (!check.equals) {
    return std::nullopt;
  }
  const auto recorded = recorded_crc_of(*checkpoint, *check.equals);
  return recorded ? recorded : check.written_crc;
}

// The CRC of a range is not the recorded one: finds the byte that differs, or that the checkpoint
// itself is damaged.
Status explain_crc(const std::filesystem::path& folder, const RangeCheck& check,
                   const Checkpoint& checkpoint, VerifyOptions options, RangeAnswer& answer) {
  if (kind_of_source(checkpoint, *check.equals) == StorageKind::kMade) {
    answer.fault = {FindingCode::kBytesDiffer, kNotWhatWasMade};
    return {};
  }
  options.progress = nullptr;
  ProgressMeter silent(options.progress);
  TRY_ASSIGN(auto compared, read_ranges(folder, {&check, 1}, &checkpoint, options, silent));
  answer = std::move(compared.front());
  const bool same = !answer.fault && !answer.difference;
  return same ? checkpoint.check_storage(checkpoint.tensors()[check.equals->source_index].storage)
              : Status();
}

}  // namespace

Result<std::vector<RangeAnswer>> check_ranges(const std::filesystem::path& folder,
                                              std::span<const RangeCheck> checks,
                                              const Checkpoint* checkpoint,
                                              const VerifyOptions& options, ProgressMeter& meter) {
  std::vector<RangeCheck> first(checks.begin(), checks.end());
  std::vector<bool> by_crc(checks.size());
  for (std::size_t i = 0; i < checks.size() && options.compare == Compare::kRecordedCrc; ++i) {
    by_crc[i] = known_crc(checks[i], checkpoint).has_value();
    if (by_crc[i]) {
      check_by_crc_alone(first[i]);
    }
  }
  auto answers = read_ranges(folder, first, checkpoint, options, meter);
  for (std::size_t i = 0; answers && i < checks.size(); ++i) {
    RangeAnswer& answer = (*answers)[i];
    const bool read_for_crc = by_crc[i] || (answer.own && options.compare != Compare::kPlaces);
    const auto known = read_for_crc ? known_crc(checks[i], checkpoint) : std::nullopt;
    if (!known || answer.fault || answer.crc32 == *known) {
      continue;
    }
    TRY(explain_crc(folder, checks[i], *checkpoint, options, answer));
  }
  return answers;
}

Result<std::string> file_sha1(const std::filesystem::path& folder, const std::string& location,
                              ProgressMeter& meter) {
  TRY_ASSIGN(const auto directory, Directory::open(folder));
  TRY_ASSIGN(auto file, open_data_file(directory, location));
  Sha sha(Sha::Kind::kSha1);
  IoBuffer buffer;
  TRY(for_each_step(file->size(), buffer,
                    [&](std::uint64_t first, std::span<std::byte> bytes) -> Status {
                      TRY(file->read(first, bytes));
                      sha.update(bytes);
                      return meter.step(0);
                    }));
  return sha.hex();
}

Fault fault_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return {FindingCode::kMissingFile, error.message};
    case ErrorCode::kInvalidArgument:
      return {FindingCode::kBadFileKind, error.message};
    case ErrorCode::kCorrupt:  // it became shorter while it was being read
      return {FindingCode::kOutOfRange, error.message};
    default:
      return {FindingCode::kUnreadable, error.message};
  }
}

std::shared_ptr<const SourceFile> open_range(const Directory& folder, const RangeCheck& check,
                                             CheckedFiles& checked, RangeAnswer& answer) {
  const bool was_checked = checked.contains(check.location);
  auto file = open_data_file(folder, check.location, &answer.hub_link,
                             was_checked ? DataCheck::kNone : DataCheck::kContents);
  if (!file) {
    answer.fault = fault_of(file.error());
    return nullptr;
  }
  if (!was_checked) {
    checked.add(check.location);
  }
  answer.hard_links = (*file)->link_count() > 1;
  if (!range_fits(check.offset, check.length, (*file)->size())) {
    answer.fault = {FindingCode::kOutOfRange,
                    "bytes " + std::to_string(check.offset) + " to " +
                        std::to_string(check.offset + check.length) + ", but the file has " +
                        std::to_string((*file)->size()) + short_data_text(**file)};
    return nullptr;
  }
  return *std::move(file);
}

}  // namespace onnx_external
