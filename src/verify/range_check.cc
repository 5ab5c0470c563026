#include "verify/range_check.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/buffer_pool.h"
#include "base/checked_math.h"
#include "base/digest.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/io_buffer.h"
#include "base/parallel.h"
#include "base/range_crc.h"
#include "base/safe_path.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/tiled_view.h"
#include "evidence/read_budget.h"
#include "tensor/derived_view.h"

namespace onnx_external {
namespace {

// Stays in a core's L2 cache between reading, comparing and the CRC.
constexpr std::uint64_t kPlainStep = std::uint64_t{256} << 10;
// Strided and inflated tensors are gathered; Checkpoint::read wants larger steps.
constexpr std::uint64_t kGatherStep = std::uint64_t{1} << 20;
// A tensor larger than this is shared by several threads.
constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20;

constexpr std::uint64_t kMaxPieces = 4096;

struct Piece {
  std::size_t check = 0;
  std::uint64_t first = 0;  // from the start of the range
  std::uint64_t length = 0;
};

struct Buffers {
  IoBuffer found;
  IoBuffer wanted;
};

std::optional<ByteDifference> first_difference(std::span<const std::byte> found,
                                               std::span<const std::byte> wanted,
                                               std::uint64_t position) {
  if (found.empty() || std::memcmp(found.data(), wanted.data(), found.size()) == 0) {
    return std::nullopt;
  }
  const auto [a, b] = std::mismatch(found.begin(), found.end(), wanted.begin());
  return ByteDifference{position + static_cast<std::uint64_t>(a - found.begin()),
                        std::to_integer<std::uint8_t>(*a), std::to_integer<std::uint8_t>(*b)};
}

// The model only claims the length, so the file must have it before it determines an allocation.
bool is_in_file(const Directory& folder, const RangeCheck& check) {
  const auto file = open_beneath(folder, check.location);
  return file && range_fits(check.offset, check.length, (*file)->size());
}

using Ranges = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // offset, length

// The bytes of all ranges inside a file of `size` bytes; the others are not read anyway.
std::uint64_t bytes_to_read(const Ranges& ranges, std::uint64_t size) {
  std::uint64_t sum = 0;
  for (const auto& [offset, length] : ranges) {
    if (range_fits(offset, length, size)) {
      sum = checked_add(sum, length).value_or(std::numeric_limits<std::uint64_t>::max());
    }
  }
  return sum;
}

// The files whose different ranges sum to far more than the file has.
std::set<std::string_view> overused_files(const Directory& folder,
                                          std::span<const RangeCheck> checks) {
  std::map<std::string_view, Ranges> ranges;
  for (const RangeCheck& check : checks) {
    ranges[check.location].emplace(check.offset, check.length);
  }
  std::set<std::string_view> overused;
  for (const auto& [location, of_file] : ranges) {
    if (of_file.size() <= kMaxTimesRead) {
      continue;
    }
    const auto file = open_beneath(folder, location);
    const std::uint64_t size = file ? (*file)->size() : 0;
    const std::uint64_t bytes = bytes_to_read(of_file, size);
    if (bytes > kAlwaysRead && bytes / kMaxTimesRead >= size) {
      overused.insert(location);
    }
  }
  return overused;
}

// Readers for tensors that would be slow to read in order.
std::optional<TiledView> wanted_tiles(const Checkpoint& checkpoint, const WantedTensor& wanted) {
  const DerivedView view(checkpoint.tensors()[wanted.tensor], wanted.recipe);
  return TiledView::of(checkpoint, *view, wanted.cast_to);
}

std::vector<Piece> cut(const Directory& folder, std::span<const RangeCheck> checks,
                       const Checkpoint* checkpoint) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    if (checks[i].length > kPieceBytes && !is_in_file(folder, checks[i])) {
      pieces.push_back({i, 0, checks[i].length});  // its reader says what is wrong
      continue;
    }
    // Sparse files can have any size, so their number of pieces has a limit of its own.
    std::uint64_t step = std::max(kPieceBytes, checks[i].length / kMaxPieces);
    if (const auto tiles =
            checks[i].equals ? wanted_tiles(*checkpoint, *checks[i].equals) : std::nullopt) {
      step = tiles->piece_bytes(step);
    }
    std::uint64_t first = 0;
    do {  // an empty range still has a file to look at
      const std::uint64_t length = std::min(step, checks[i].length - first);
      pieces.push_back({i, first, length});
      first += length;
    } while (first < checks[i].length);
  }
  return pieces;
}

// The bytes of a checkpoint tensor, straight from its file where they are a plain range.
class WantedBytes {
 public:
  WantedBytes(const Checkpoint& checkpoint, const WantedTensor& wanted)
      : checkpoint_(checkpoint), wanted_(wanted) {
    if (const auto range = wanted_range(checkpoint, wanted)) {
      file_ = CheckpointAccess::files(checkpoint)[range->file].get();
      offset_ = range->offset;
    }
  }

  [[nodiscard]] std::uint64_t step() const { return file_ != nullptr ? kPlainStep : kGatherStep; }

  // True if the bytes are at exactly that place.
  [[nodiscard]] bool stands_in(const SourceFile& file, std::uint64_t offset) const {
    return file_ != nullptr && offset_ == offset && file_->same_file(file);
  }

  // The part of a hole of the data file that is also a hole here; data if there is none.
  [[nodiscard]] FileRun same_run(std::uint64_t first, FileRun run) const {
    if (file_ == nullptr || !run.is_hole) {
      return {run.bytes, false};
    }
    return next_run(file_->fd(), offset_ + first, offset_ + first + run.bytes);
  }

  [[nodiscard]] Status read(std::uint64_t first, std::span<std::byte> out) const {
    return file_ != nullptr ? file_->read(offset_ + first, out)
                            : read_wanted(checkpoint_, wanted_, first, out);
  }

 private:
  const Checkpoint& checkpoint_;
  const WantedTensor& wanted_;
  const SourceFile* file_ = nullptr;  // null: no plain range
  std::uint64_t offset_ = 0;
};

class PieceReader {
 public:
  PieceReader(const RangeCheck& check, const Piece& piece, const VerifyOptions& options,
              BufferPool& tiles)
      : check_(check), piece_(piece), options_(options), tiles_(tiles) {}

  // Reads the piece; an error of the data file becomes answer.fault.
  [[nodiscard]] Status run(const Directory& folder, const Checkpoint* checkpoint, Buffers& buffers,
                           ProgressMeter& meter, RangeAnswer& answer) const {
    auto file = open_beneath(folder, check_.location);
    if (!file) {
      answer.fault = fault_of(file.error());
      return meter.step(piece_.length);
    }
    if (!range_fits(check_.offset, check_.length, (*file)->size())) {
      answer.fault = {FindingCode::kOutOfRange, "bytes " + std::to_string(check_.offset) + " to " +
                                                    std::to_string(check_.offset + check_.length) +
                                                    ", but the file has " +
                                                    std::to_string((*file)->size())};
      return meter.step(piece_.length);
    }
    std::optional<WantedBytes> wanted;
    if (check_.equals) {
      wanted.emplace(*checkpoint, *check_.equals);
      answer.own = wanted->stands_in(**file, check_.offset);
    }
    if (options_.compare == Compare::kPlaces) {
      if (wanted && !answer.own) {
        answer.fault = {FindingCode::kBytesDiffer, "it is not the checkpoint's own range"};
      }
      return meter.step(piece_.length);
    }
    if (answer.own) {
      wanted.reset();  // comparing it with itself proves nothing
    }
    if (options_.drop_cache != DropCache::kNo) {
      drop(**file);
    }
    const auto tiles =
        wanted ? wanted_tiles(*checkpoint, *check_.equals) : std::optional<TiledView>();
    Status status = tiles ? read_tiles(**file, *tiles, buffers, meter, answer)
                          : read(**file, wanted, buffers, meter, answer);
    if (options_.drop_cache == DropCache::kBehind) {
      drop(**file);
    }
    return status;
  }

 private:
  void drop(const SourceFile& file) const {
    drop_pages(file.fd(), check_.offset + piece_.first, piece_.length);
  }

  [[nodiscard]] Status read(const SourceFile& file, const std::optional<WantedBytes>& wanted,
                            Buffers& buffers, ProgressMeter& meter, RangeAnswer& answer) const {
    const std::uint64_t step = wanted ? wanted->step() : kPlainStep;
    SparseCrc32 crc;
    std::uint64_t data_end = 0;  // where the next hole may begin
    for (std::uint64_t done = 0; done < piece_.length;) {
      const std::uint64_t first = piece_.first + done;
      if (done == data_end) {
        const FileRun run = run_at(file, wanted, first);
        data_end = done + run.bytes;
        if (run.is_hole) {
          crc.skip_zeros(run.bytes);
          done = data_end;
          TRY(meter.step(run.bytes));
          continue;
        }
      }
      const std::uint64_t size = std::min(step, data_end - done);
      const auto found = buffers.found.first(size);
      if (auto status = file.read(check_.offset + first, found); !status) {
        answer.fault = fault_of(status.error());
        return meter.step(piece_.length - done);
      }
      if (check_.wants_crc || answer.own) {
        crc.update(found);
      }
      if (wanted && !answer.difference) {
        const auto expected = buffers.wanted.first(size);
        TRY(wanted->read(first, expected));
        answer.difference = first_difference(found, expected, first);
      }
      done += size;
      TRY(meter.step(size));
    }
    answer.crc32 = crc.value();
    return {};
  }

  // The expected bytes come in tiles, and the file is read in the same order.
  [[nodiscard]] Status read_tiles(const SourceFile& file, const TiledView& tiles, Buffers& buffers,
                                  ProgressMeter& meter, RangeAnswer& answer) const {
    BufferPool::Lease tile(tiles_);
    std::uint64_t done = 0;
    const auto compare = [&](std::uint64_t at, std::span<const std::byte> run) -> Status {
      while (!run.empty()) {
        const auto wanted = run.first(std::min<std::size_t>(run.size(), kPlainStep));
        const auto found = buffers.found.first(wanted.size());
        if (auto status = file.read(check_.offset + at, found); !status) {
          answer.fault = fault_of(status.error());
          return status;
        }
        const auto difference = first_difference(found, wanted, at);
        if (difference && (!answer.difference || difference->byte < answer.difference->byte)) {
          answer.difference = difference;
        }
        done += found.size();
        at += found.size();
        run = run.subspan(found.size());
        TRY(meter.step(found.size()));
      }
      return {};
    };
    auto crc = tiles.read(piece_.first, piece_.length, *tile, compare);
    if (answer.fault) {
      return meter.step(piece_.length - done);
    }
    if (crc && answer.difference && check_.wants_crc) {
      crc = range_crc32(file, check_.offset + piece_.first, piece_.length);
    }
    answer.crc32 = crc.value_or(0);
    return crc ? Status() : fail(crc.error());
  }

  // Ranges that are holes on both sides are equal and need not be read.
  [[nodiscard]] FileRun run_at(const SourceFile& file, const std::optional<WantedBytes>& wanted,
                               std::uint64_t first) const {
    const std::uint64_t left = piece_.first + piece_.length - first;
    if (left < kMinHoleBytes) {
      return {left, false};
    }
    const std::uint64_t place = check_.offset + first;
    const FileRun run = next_run(file.fd(), place, place + left);
    return wanted ? wanted->same_run(first, run) : run;
  }

  const RangeCheck& check_;
  const Piece& piece_;
  const VerifyOptions& options_;
  BufferPool& tiles_;
};

// Pieces of one range come in order: the first fault and the first difference are the range's.
void join(RangeAnswer& range, const Piece& piece, RangeAnswer answer) {
  if (!range.fault) {
    range.fault = std::move(answer.fault);
  }
  if (!range.difference) {
    range.difference = answer.difference;
  }
  range.own = range.own || answer.own;
  range.crc32 = crc32_concat(range.crc32, answer.crc32, piece.length);
}

}  // namespace

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

namespace {

Result<std::vector<RangeAnswer>> read_ranges(const std::filesystem::path& folder,
                                             std::span<const RangeCheck> checks,
                                             const Checkpoint* checkpoint,
                                             const VerifyOptions& options, ProgressMeter& meter) {
  TRY_ASSIGN(const auto directory, Directory::open(folder));
  const std::set<std::string_view> overused = overused_files(directory, checks);
  std::vector<Piece> pieces = cut(directory, checks, checkpoint);
  std::erase_if(
      pieces, [&](const Piece& piece) { return overused.contains(checks[piece.check].location); });
  std::vector<RangeAnswer> answers(pieces.size());
  const int threads = thread_count(options.threads);
  std::vector<Buffers> buffers(static_cast<std::size_t>(threads));
  BufferPool tiles(kMaxTiles);
  TRY(parallel_for(pieces.size(), threads, [&](std::size_t i, int thread) {
    const PieceReader reader(checks[pieces[i].check], pieces[i], options, tiles);
    return reader.run(directory, checkpoint, buffers[static_cast<std::size_t>(thread)], meter,
                      answers[i]);
  }));
  std::vector<RangeAnswer> ranges(checks.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (overused.contains(checks[i].location)) {
      ranges[i].fault = {FindingCode::kBadEntry,
                         "the model's ranges of this file sum to more than " +
                             std::to_string(kMaxTimesRead) + " times its size; not read"};
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    join(ranges[pieces[i].check], pieces[i], std::move(answers[i]));
  }
  return ranges;
}

// The same range without a comparison: its CRC will tell.
void check_by_crc_alone(RangeCheck& check) {
  check.equals.reset();
  check.wants_crc = true;
}

// By the checkpoint, or while the range was written.
std::optional<std::uint32_t> known_crc(const RangeCheck& check, const Checkpoint* checkpoint) {
  if (!check.equals || check.equals->cast_to) {
    return check.equals ? check.written_crc : std::nullopt;
  }
  const DerivedView view(checkpoint->tensors()[check.equals->tensor], check.equals->recipe);
  const auto recorded = checkpoint->recorded_crc(*view);
  return recorded ? recorded : check.written_crc;
}

// The CRC of a range is not the recorded one: finds the byte that differs, or that the checkpoint
// itself is damaged.
Status explain_crc(const std::filesystem::path& folder, const RangeCheck& check,
                   const Checkpoint& checkpoint, VerifyOptions options, RangeAnswer& answer) {
  options.progress = nullptr;
  ProgressMeter silent(options.progress);
  TRY_ASSIGN(auto compared, read_ranges(folder, {&check, 1}, &checkpoint, options, silent));
  answer = std::move(compared.front());
  const bool same = !answer.fault && !answer.difference;
  return same ? checkpoint.check_storage(checkpoint.tensors()[check.equals->tensor].storage)
              : Status();
}

}  // namespace

Status read_wanted(const Checkpoint& checkpoint, const WantedTensor& wanted, std::uint64_t first,
                   std::span<std::byte> out) {
  const DerivedView view(checkpoint.tensors()[wanted.tensor], wanted.recipe);
  return wanted.cast_to ? checkpoint.read_as(*view, *wanted.cast_to, first, out)
                        : checkpoint.read(*view, first, out);
}

std::optional<FileRange> wanted_range(const Checkpoint& checkpoint, const WantedTensor& wanted) {
  const DerivedView view(checkpoint.tensors()[wanted.tensor], wanted.recipe);
  return wanted.cast_to ? std::nullopt : checkpoint.plain_range(*view);
}

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

Result<std::optional<ByteDifference>> compare_bytes(std::span<const std::byte> bytes,
                                                    std::uint64_t first,
                                                    const Checkpoint& checkpoint,
                                                    const WantedTensor& wanted, IoBuffer& buffer) {
  const auto expected = buffer.first(bytes.size());
  TRY(read_wanted(checkpoint, wanted, first, expected));
  return first_difference(bytes, expected, first);
}

Result<std::string> file_sha1(const std::filesystem::path& folder, const std::string& location,
                              ProgressMeter& meter) {
  TRY_ASSIGN(auto file, open_beneath(folder, location));
  Sha sha(Sha::Kind::kSha1);
  IoBuffer buffer;
  for (std::uint64_t first = 0; first < file->size();) {
    const auto bytes = buffer.first(std::min(kPlainStep, file->size() - first));
    TRY(file->read(first, bytes));
    sha.update(bytes);
    first += bytes.size();
    TRY(meter.step(0));
  }
  return sha.hex();
}

}  // namespace onnx_external
