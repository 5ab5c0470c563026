#include "tensor/missing_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "base/holes.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kLeastZeros = 4096;  // fewer are as likely padding
constexpr std::uint64_t kLeastRow = 512;     // zeros begin at shorter rows by chance
constexpr std::uint64_t kByChance = 32;      // small integers end a row with a few zeros
constexpr std::uint64_t kFirstBlock = 4096;
constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostRead = std::uint64_t{1} << 30;
constexpr int kMostRuns = 1000;

bool are_zeros(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// The bytes [begin, end).
Result<std::vector<std::byte>> bytes_of(const SourceFile& file, std::uint64_t begin,
                                        std::uint64_t end) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin));
  TRY(file.read(begin, bytes));
  return bytes;
}

// Returns where the zeros that end at `end` begin; nullopt if there are too many to read.
Result<std::optional<std::uint64_t>> zeros_before(const SourceFile& file, std::uint64_t end) {
  std::uint64_t read = 0;
  for (std::uint64_t block = kFirstBlock; end > 0 && read < kMostRead; block = kBlock) {
    const std::uint64_t begin = end - std::min(end, block);
    const FileRun run = next_run(file, begin, end);
    if (!run.is_hole || run.bytes < end - begin) {
      TRY_ASSIGN(const auto bytes, bytes_of(file, begin, end));
      if (!are_zeros(bytes)) {
        const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                       [](std::byte each) { return each != std::byte{0}; });
        return end - static_cast<std::uint64_t>(last - bytes.rbegin());
      }
      read += end - begin;
    }
    end = begin;
  }
  return end == 0 ? std::optional<std::uint64_t>(0) : std::nullopt;
}

bool is_matrix(const StoredRange& range) {
  return std::count_if(range.shape.begin(), range.shape.end(),
                       [](std::int64_t size) { return size > 1; }) > 1;
}

// A place inside of a tensor, from its first byte on.
struct Place {
  const StoredRange* range = nullptr;
  std::uint64_t at = 0;
  std::uint64_t row = 0;  // bytes
  bool is_in_row = false;
};

class DataCheck {
 public:
  DataCheck(const SourceFile& file, std::vector<StoredRange> ranges)
      : file_(file), ranges_(std::move(ranges)) {
    std::erase_if(ranges_, [](const StoredRange& range) { return range.bytes == 0; });
    std::sort(ranges_.begin(), ranges_.end(), [](const StoredRange& a, const StoredRange& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    ranges_.erase(std::unique(ranges_.begin(), ranges_.end(),
                              [](const StoredRange& a, const StoredRange& b) {
                                return a.offset == b.offset && a.bytes == b.bytes;
                              }),
                  ranges_.end());
    for (const StoredRange& range : ranges_) {
      end_ = std::max(end_, range.offset + range.bytes);
    }
  }

  Result<std::string> run() {
    if (ranges_.empty() || file_.runs() != nullptr || end_ > file_.size()) {
      return std::string();
    }
    TRY(check_holes());
    TRY_ASSIGN(const auto zeros, zeros_before(file_, end_));
    if (!zeros || end_ - *zeros < kLeastZeros) {
      return std::string();
    }
    return judge_end(*zeros);
  }

 private:
  // The place of a byte that is inside of a tensor. Zeros may begin within an element.
  [[nodiscard]] Place place_of(std::uint64_t offset) const {
    auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), offset,
        [](std::uint64_t at, const StoredRange& range) { return at < range.offset; });
    if (after == ranges_.begin()) {
      return {};
    }
    const StoredRange& range = *--after;
    std::uint64_t part = range.bytes;
    Place place{.range = &range, .at = offset - range.offset};
    for (const std::int64_t size : range.shape) {
      part /= static_cast<std::uint64_t>(size);
    }
    place.at = (place.at + part - 1) / part * part;  // of an element
    if (place.at == 0 || place.at >= range.bytes) {
      return {};
    }
    place.is_in_row = true;
    part = range.bytes;
    for (const std::int64_t size : range.shape) {
      const bool is_first = part == range.bytes;
      part /= static_cast<std::uint64_t>(size);
      if (size > 1 && (is_first || part >= kLeastRow)) {
        place.row = part;
        place.is_in_row = place.is_in_row && (part - place.at % part) % part > kByChance;
      }
    }
    return place;
  }

  // Returns whether the previous row has zeros in the same columns, as in a matrix with columns of
  // zeros.
  [[nodiscard]] Result<bool> is_like_row_before(const Place& place) const {
    if (place.at < place.row || place.row > kMostRead) {
      return false;
    }
    const std::uint64_t begin = place.range->offset + place.at - place.row;
    TRY_ASSIGN(const auto bytes, bytes_of(file_, begin, begin + place.row - place.at % place.row));
    return are_zeros(bytes);
  }

  Status check_holes() const {
    std::uint64_t at = ranges_.front().offset;
    for (int runs = 0; at < end_ && runs < kMostRuns; ++runs) {
      const FileRun run = next_run(file_, at, end_);
      if (run.is_hole && at > 0 && at + run.bytes < end_) {
        TRY(check_hole(at, at + run.bytes));
      }
      at += run.bytes;
    }
    return {};
  }

  // A tool that saves space makes holes only within zeros, but an incomplete file may end anywhere.
  Status check_hole(std::uint64_t begin, std::uint64_t end) const {
    TRY_ASSIGN(const auto before, bytes_of(file_, begin - 1, begin));
    TRY_ASSIGN(const auto after, bytes_of(file_, end, end + 1));
    const Place first = place_of(begin);
    const Place last = place_of(end);
    if (are_zeros(before) || are_zeros(after) || !(first.is_in_row || last.is_in_row)) {
      return {};
    }
    const StoredRange& range = first.is_in_row ? *first.range : *last.range;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} bytes from byte {} on, in tensor {}, were never written, as "
                            "after an interrupted download; download or copy the file again",
                            file_.name(), end - begin, begin, quote(range.tensor)));
  }

  Result<std::string> judge_end(std::uint64_t zeros) const {
    const Place place = place_of(zeros);
    const auto whole = std::find_if(ranges_.begin(), ranges_.end(), [&](const StoredRange& range) {
      return range.offset >= zeros;
    });
    const auto count = ranges_.end() - whole;
    const bool are_weights = count > 1 && std::any_of(whole, ranges_.end(), is_matrix);
    bool is_missing = place.range != nullptr && are_weights;
    if (place.is_in_row && !is_missing) {
      TRY_ASSIGN(const bool is_alike, is_like_row_before(place));
      is_missing = !is_alike;
    }
    if (is_missing) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: its last {} of {} bytes, from within tensor {} on, are zeros, "
                              "as after an interrupted download; download or copy the file again",
                              file_.name(), end_ - zeros, end_, quote(place.range->tensor)));
    }
    return place.range != nullptr || !are_weights
               ? std::string()
               : fmt::format(
                     "{}: its last {} tensors, from {} on ({} bytes), are zeros: if this is not "
                     "intended, the download or copy of the file was not completed",
                     file_.name(), count, quote(whole->tensor), end_ - whole->offset);
  }

  const SourceFile& file_;
  std::vector<StoredRange> ranges_;
  std::uint64_t end_ = 0;
};

}  // namespace

Result<std::string> check_is_not_missing(const SourceFile& file, std::vector<StoredRange> ranges) {
  return DataCheck(file, std::move(ranges)).run();
}

}  // namespace onnx_external
