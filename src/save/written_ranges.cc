#include "save/written_ranges.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/read_back.h"
#include "base/try.h"

namespace onnx_external {
namespace {

using Parts = std::vector<std::uint32_t>;  // of one file

class ClaimChecker {
 public:
  ClaimChecker(const SavePlan& plan, const Directory& data, WrittenRanges& written,
               const WriteOptions& options, ProgressMeter& meter)
      : plan_(plan), data_(data), written_(written), options_(options), meter_(meter) {}

  // Drops the claims of the file that do not hold.
  Status check(std::uint32_t file, const Parts& ranges, ByteComparer& comparer) {
    const bool claimed = std::any_of(ranges.begin(), ranges.end(), [&](std::uint32_t range) {
      return written_[range].has_value();
    });
    const auto opened = claimed ? reopen(file) : nullptr;
    bool any = false;
    for (const std::uint32_t range : ranges) {
      if (!written_[range]) {
        continue;
      }
      TRY_ASSIGN(auto holds, opened
                                 ? has_crc(*opened, plan_.ranges[range], *written_[range], comparer)
                                 : Result<bool>(false));
      if (!holds) {
        written_[range].reset();
      }
      any = any || holds;
    }
    return any ? Status() : data_.remove_tree(plan_.files[file].name);
  }

 private:
  // Synced, and no longer than planned; null when the file is not to be trusted.
  std::shared_ptr<const SourceFile> reopen(std::uint32_t file) const {
    auto opened = OutputFile::reopen(data_, plan_.files[file].name);
    const auto size = opened ? opened->size() : fail(opened.error());
    if (!size || *size > plan_.files[file].bytes ||
        (options_.sync == Sync::kFiles && !opened->sync())) {
      return nullptr;
    }
    opened->drop_cache();
    return (*std::move(opened)).to_source().value_or(nullptr);
  }

  // Bytes that cannot be read count as missing. Fails only when cancelled.
  Result<bool> has_crc(const SourceFile& file, const DataRange& range, std::uint32_t wanted,
                       ByteComparer& comparer) {
    TRY_ASSIGN(const auto read,
               read_back({file, range.offset, 0, range.bytes}, {}, comparer,
                         [this](std::uint64_t bytes) { return meter_.step(bytes); }));
    return !read.unreadable && read.crc32 == wanted;
  }

  const SavePlan& plan_;
  const Directory& data_;
  WrittenRanges& written_;  // each range is touched by the thread that has its file
  const WriteOptions& options_;
  ProgressMeter& meter_;
};

}  // namespace

Result<WrittenRanges> sound_ranges(const SavePlan& plan, const Directory& data,
                                   WrittenRanges claimed, const WriteOptions& options,
                                   ProgressMeter& meter) {
  std::vector<Parts> ranges_of(plan.files.size());
  for (std::uint32_t range = 0; range < plan.ranges.size(); ++range) {
    ranges_of[plan.ranges[range].file].push_back(range);
  }
  const int threads = thread_count(options.threads);
  std::vector<ByteComparer> comparers(static_cast<std::size_t>(threads));
  meter.begin(Phase::kVerify, bytes_of(plan, claimed));
  ClaimChecker checker(plan, data, claimed, options, meter);
  TRY(parallel_for(ranges_of.size(), threads, [&](std::size_t file, int thread) {
    return checker.check(static_cast<std::uint32_t>(file), ranges_of[file],
                         comparers[static_cast<std::size_t>(thread)]);
  }));
  TRY(meter.finish());
  return claimed;
}

std::uint64_t bytes_of(const SavePlan& plan, const WrittenRanges& written) {
  std::uint64_t bytes = 0;
  for (std::size_t range = 0; range < written.size(); ++range) {
    bytes += written[range] ? plan.ranges[range].bytes : 0;
  }
  return bytes;
}

}  // namespace onnx_external
