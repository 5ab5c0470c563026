#include "save/written_parts.h"

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
  ClaimChecker(const SavePlan& plan, const Directory& data, WrittenParts& written,
               const WriteOptions& options, ProgressMeter& meter)
      : plan_(plan), data_(data), written_(written), options_(options), meter_(meter) {}

  // Drops the claims of the file that do not hold.
  Status check(std::uint32_t file, const Parts& parts, IoBuffer& buffer) {
    const bool claimed = std::any_of(
        parts.begin(), parts.end(), [&](std::uint32_t part) { return written_[part].has_value(); });
    const auto opened = claimed ? reopen(file) : std::nullopt;
    bool any = false;
    for (const std::uint32_t part : parts) {
      if (!written_[part]) {
        continue;
      }
      TRY_ASSIGN(auto holds, opened ? has_crc(*opened, plan_.parts[part], *written_[part], buffer)
                                    : Result<bool>(false));
      if (!holds) {
        written_[part].reset();
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
  Result<bool> has_crc(const OutputFile& file, const PlannedPart& part, std::uint32_t wanted,
                       IoBuffer& buffer) {
    Crc32 crc;
    for (std::uint64_t done = 0; done < part.bytes;) {
      const auto chunk = buffer.first(std::min(kStep, part.bytes - done));
      if (!read_exact(file.fd(), part.offset + done, chunk, file.name())) {
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
  WrittenParts& written_;  // each part is touched by the thread that has its file
  const WriteOptions& options_;
  ProgressMeter& meter_;
};

}  // namespace

Result<WrittenParts> sound_parts(const SavePlan& plan, const Directory& data, WrittenParts claimed,
                                 const WriteOptions& options, ProgressMeter& meter) {
  std::vector<Parts> parts_of(plan.files.size());
  for (std::uint32_t part = 0; part < plan.parts.size(); ++part) {
    parts_of[plan.parts[part].file].push_back(part);
  }
  const int threads = thread_count(options.threads);
  std::vector<IoBuffer> buffers(static_cast<std::size_t>(threads));
  meter.begin(Phase::kVerify, bytes_of(plan, claimed));
  ClaimChecker checker(plan, data, claimed, options, meter);
  TRY(parallel_for(parts_of.size(), threads, [&](std::size_t file, int thread) {
    return checker.check(static_cast<std::uint32_t>(file), parts_of[file],
                         buffers[static_cast<std::size_t>(thread)]);
  }));
  TRY(meter.finish());
  return claimed;
}

std::uint64_t bytes_of(const SavePlan& plan, const WrittenParts& written) {
  std::uint64_t bytes = 0;
  for (std::size_t part = 0; part < written.size(); ++part) {
    bytes += written[part] ? plan.parts[part].bytes : 0;
  }
  return bytes;
}

}  // namespace onnx_external
