#include "verify/range_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/checked_math.h"
#include "base/safe_path.h"
#include "evidence/read_budget.h"
#include "save/planned_bytes.h"
#include "verify/matrix_check.h"

namespace onnx_external {
namespace {

// A tensor larger than this is shared by several threads.
constexpr std::uint64_t kChunkBytes = std::uint64_t{32} << 20;

constexpr std::uint64_t kMaxChunks = 4096;

// The model only claims the length, so the file must have it before it determines an allocation.
bool is_in_file(const Directory& folder, const RangeCheck& check) {
  const auto file = open_data_file(folder, check.location, nullptr, DataCheck::kNone);
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

void cut_matrix(std::span<const RangeCheck> checks, const MatrixCheck& matrix,
                const Checkpoint& checkpoint, CheckWork& work) {
  const WantedTensor& tensor = *checks[matrix.front()].equals;
  const std::uint64_t rows = tensor.packed->rows;
  const std::uint64_t step = matrix_chunk_rows(checkpoint, tensor, kChunkBytes, kMaxChunks);
  for (std::uint64_t first = 0; first < rows; first += std::min(step, rows - first)) {
    work.tasks.push_back({work.chunks.size(), matrix.size()});
    for (const std::size_t check : matrix) {
      const std::uint64_t row_bytes = part_row_bytes(*checks[check].equals);
      work.chunks.push_back({check, first * row_bytes, std::min(step, rows - first) * row_bytes});
    }
  }
}

}  // namespace

RangePlan::RangePlan(const Checkpoint* checkpoint)
    : checkpoint_(checkpoint),
      ids_(checkpoint == nullptr ? std::span<const Storage>() : checkpoint->storages()) {}

RangePlan::Added RangePlan::add(const ExternalEntry& entry,
                                const std::optional<WantedTensor>& equals,
                                std::optional<std::uint32_t> written_crc, bool wants_crc,
                                std::size_t model) {
  const Expected expected =
      equals ? ids_.id_of(*planned_view(*checkpoint_, *equals), equals->cast_to) : std::nullopt;
  const auto [place, is_new] = known_.try_emplace(
      {entry.location, entry.offset, entry.length, equals.has_value(), expected}, checks_.size());
  if (is_new) {
    checks_.push_back({entry.location, entry.offset, entry.length, equals, written_crc, false});
    last_model_.push_back(model);
  }
  const std::size_t check = place->second;
  checks_[check].wants_crc |= wants_crc;
  const bool is_first = is_new || std::exchange(last_model_[check], model) != model;
  return {check, is_first ? entry.length : 0};
}

std::uint64_t RangePlan::bytes() const {
  std::uint64_t bytes = 0;
  for (const RangeCheck& check : checks_) {
    bytes += check.length;
  }
  return bytes;
}

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
    const auto file = open_data_file(folder, location, nullptr, DataCheck::kNone);
    const std::uint64_t size = file ? (*file)->size() : 0;
    const std::uint64_t bytes = bytes_to_read(of_file, size);
    if (bytes > kAlwaysRead && bytes / kMaxTimesRead >= size) {
      overused.insert(location);
    }
  }
  return overused;
}

CheckWork cut_checks(const Directory& folder, std::span<const RangeCheck> checks,
                     const Checkpoint* checkpoint, const VerifyOptions& options,
                     const std::set<std::string_view>& skipped) {
  CheckWork work;
  std::vector<CheckChunk>& chunks = work.chunks;
  std::vector<bool> done(checks.size());
  for (std::size_t i = 0; i < checks.size(); ++i) {
    done[i] = skipped.contains(checks[i].location);
  }
  if (checkpoint != nullptr && options.compare != Compare::kPlaces) {
    const auto is_readable = [&](const RangeCheck& check) {
      return !skipped.contains(check.location) && is_in_file(folder, check);
    };
    for (const MatrixCheck& matrix : find_matrix_checks(checks, *checkpoint, is_readable)) {
      cut_matrix(checks, matrix, *checkpoint, work);
      for (const std::size_t check : matrix) {
        done[check] = true;
      }
    }
  }
  const std::size_t of_matrices = chunks.size();
  for (std::size_t i = 0; i < checks.size(); ++i) {
    if (done[i]) {
      continue;
    }
    const bool is_made =
        checks[i].equals && kind_of_source(*checkpoint, *checks[i].equals) == StorageKind::kMade;
    // LazyBytes are produced once for the whole range. A missing file is reported by its reader.
    if (is_made || (checks[i].length > kChunkBytes && !is_in_file(folder, checks[i]))) {
      chunks.push_back({i, 0, checks[i].length});
      continue;
    }
    // Sparse files can have any size, so their number of chunks has a limit of its own.
    std::uint64_t step = std::max(kChunkBytes, checks[i].length / kMaxChunks);
    if (const auto tiles =
            checks[i].equals ? planned_tiles(*checkpoint, *checks[i].equals) : std::nullopt) {
      step = tiles->chunk_bytes(step);
    }
    std::uint64_t first = 0;
    do {  // an empty range still has a file to look at
      const std::uint64_t length = std::min(step, checks[i].length - first);
      chunks.push_back({i, first, length});
      first += length;
    } while (first < checks[i].length);
  }
  for (std::size_t i = of_matrices; i < chunks.size(); ++i) {
    work.tasks.push_back({i, 1});
  }
  return work;
}

}  // namespace onnx_external
