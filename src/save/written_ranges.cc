#include "save/written_ranges.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{256} << 10;

using Parts = std::vector<std::uint32_t>;  // of one file

class ClaimChecker {
 public:
  ClaimChecker(const SavePlan& plan, const Directory& data, WrittenRanges& written,
               const WriteOptions& options, ProgressMeter& meter)
      : plan_(plan), data_(data), written_(written), options_(options), meter_(meter) {}

  // Drops the claims of the file that do not hold.
  Status check(std::uint32_t file, const Parts& ranges, IoBuffer& buffer) {
    const bool claimed = std::any_of(ranges.begin(), ranges.end(), [&](std::uint32_t range) {
      return written_[range].has_value();
    });
    const auto opened = claimed ? reopen(file) : std::nullopt;
    bool any = false;
    for (const std::uint32_t range : ranges) {
      if (!written_[range]) {
        continue;
      }
      TRY_ASSIGN(auto holds, opened
                                 ? has_crc(*opened, plan_.ranges[range], *written_[range], buffer)
                                 : Result<bool>(false));
      if (!holds) {
        written_[range].reset();
      }
      any = any || holds;
    }
    return any ? Status() : data_.remove_tree(plan_.files[file].name);
  }

 private:
  // Synced, and no longer than planned; nothing when the file is not to be trusted.
  std::optional<OutputFile> reopen(std::uint32_t file) const {
    auto opened = OutputFile::reopen(data_, plan_.files[file].name);
    const auto size = opened ? opened->size() : fail(opened.error());
    if (!size || *size > plan_.files[file].bytes ||
        (options_.sync == Sync::kFiles && !opened->sync())) {
      return std::nullopt;
    }
    opened->drop_cache();
    return *std::move(opened);
  }

  // Bytes that cannot be read count as missing. Fails only when cancelled.
  Result<bool> has_crc(const OutputFile& file, const DataRange& range, std::uint32_t wanted,
                       IoBuffer& buffer) {
    Crc32 crc;
    for (std::uint64_t done = 0; done < range.bytes;) {
      const auto chunk = buffer.first(std::min(kStep, range.bytes - done));
      if (!read_exact(file.fd(), range.offset + done, chunk, file.name())) {
        return false;
      }
      crc.update(chunk);
      done += chunk.size();
      TRY(meter_.step(chunk.size()));
    }
    return crc.value() == wanted;
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
  std::vector<IoBuffer> buffers(static_cast<std::size_t>(threads));
  meter.begin(Phase::kVerify, bytes_of(plan, claimed));
  ClaimChecker checker(plan, data, claimed, options, meter);
  TRY(parallel_for(ranges_of.size(), threads, [&](std::size_t file, int thread) {
    return checker.check(static_cast<std::uint32_t>(file), ranges_of[file],
                         buffers[static_cast<std::size_t>(thread)]);
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
