#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/digest.h"
#include "base/io_buffer.h"
#include "base/name_map.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/read_step.h"
#include "base/try.h"
#include "save/layout.h"
#include "save/make_plan.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// Each may hold Checkpoint::kReadScratchBytes.
constexpr int kMaxReaders = 4;

// One search. A range is read for its CRC-32 only when another has its size, and for its SHA-256
// only when another has its size and its CRC.
class EqualRanges {
 public:
  EqualRanges(const SavePlan& plan, const SourceModels& models, const Checkpoint& checkpoint,
              int threads, const ProgressFn& progress)
      : plan_(plan),
        models_(models),
        checkpoint_(checkpoint),
        threads_(std::min(thread_count(threads), kMaxReaders)),
        progress_(progress),
        groups_(plan.ranges.size()) {}

  // Returns, for each range, the first range with the same bytes, which is the range itself or an
  // earlier one.
  Result<std::vector<std::uint32_t>> find() {
    for (std::uint32_t range = 0; range < plan_.ranges.size(); ++range) {
      groups_[range] = std::to_string(plan_.ranges[range].bytes);
    }
    TRY(refine([this](std::uint32_t range, ProgressMeter& meter) { return crc_of(range, meter); }));
    TRY(refine([this](std::uint32_t range, ProgressMeter& meter) { return sha_of(range, meter); }));
    NameMap<std::uint32_t> first;
    std::vector<std::uint32_t> firsts;
    for (std::uint32_t range = 0; range < plan_.ranges.size(); ++range) {
      firsts.push_back(first.emplace(groups_[range], range).first->second);
    }
    return firsts;
  }

 private:
  const PlannedTensor& source(std::uint32_t range) const {
    return plan_.tensors[plan_.ranges[range].source_tensor];
  }

  // Adds to the group of every range that is not alone in it what `digest` says of the range.
  template <typename Digest>
  Status refine(const Digest& digest) {
    NameMap<std::size_t> sizes;
    for (const std::string& group : groups_) {
      ++sizes[group];
    }
    std::vector<std::uint32_t> candidates;
    std::uint64_t bytes = 0;
    for (std::uint32_t range = 0; range < groups_.size(); ++range) {
      if (sizes.at(groups_[range]) > 1) {
        candidates.push_back(range);
        bytes += plan_.ranges[range].bytes;
      }
    }
    ProgressMeter meter(progress_);
    meter.begin(Phase::kCompare, bytes);
    std::vector<std::string> digests(candidates.size());
    TRY(parallel_for(candidates.size(), threads_, [&](std::size_t i, int) -> Status {
      TRY_ASSIGN(digests[i], digest(candidates[i], meter));
      return {};
    }));
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      groups_[candidates[i]] += " " + digests[i];
    }
    return meter.finish();
  }

  template <typename Take>
  Status read(std::uint32_t range, ProgressMeter& meter, const Take& take) {
    TRY_ASSIGN(const auto read, planned_reader(source(range), models_, checkpoint_));
    IoBuffer buffer;
    return for_each_step(plan_.ranges[range].bytes, buffer,
                         [&](std::uint64_t first, std::span<std::byte> chunk) -> Status {
                           TRY(read(first, chunk));
                           take(chunk);
                           return meter.step(chunk.size());
                         });
  }

  Result<std::string> crc_of(std::uint32_t range, ProgressMeter& meter) {
    if (const auto recorded = recorded_crc_of(checkpoint_, source(range))) {
      (void)meter.add(plan_.ranges[range].bytes);
      return std::to_string(*recorded);
    }
    if (const auto tiles = planned_tiles(checkpoint_, source(range))) {
      BufferPool::Lease buffer(buffers_);
      std::uint32_t crc = 0;
      const auto take = [&](std::uint64_t, std::span<const std::byte> run) {
        return meter.step(run.size());
      };
      TRY(tiles->read(0, plan_.ranges[range].bytes, *buffer, take, &crc));
      return std::to_string(crc);
    }
    Crc32 crc;
    TRY(read(range, meter, [&](std::span<const std::byte> chunk) { crc.update(chunk); }));
    return std::to_string(crc.value());
  }

  Result<std::string> sha_of(std::uint32_t range, ProgressMeter& meter) {
    Sha sha(Sha::Kind::kSha256);
    TRY(read(range, meter, [&](std::span<const std::byte> chunk) { sha.update(chunk); }));
    return sha.hex();
  }

  const SavePlan& plan_;
  SourceModels models_;
  const Checkpoint& checkpoint_;
  int threads_;
  const ProgressFn& progress_;
  BufferPool buffers_{kMaxTiles};
  std::vector<std::string> groups_;  // ranges with equal texts may still be equal
};

}  // namespace

Result<SavePlan> merge_equal_bytes(SavePlan plan, const SourceModels& models,
                                   const Checkpoint& checkpoint, const PlanOptions& options,
                                   int threads, const ProgressFn& progress) {
  if (plan.layout == Layout::kLink) {
    return fail(ErrorCode::kInvalidArgument,
                "the layout 'link' copies nothing, so finding equal bytes saves nothing; leave out "
                "the search for equal bytes");
  }
  if (options.layout == Layout::kInline) {
    return plan;
  }
  TRY_ASSIGN(const auto firsts, EqualRanges(plan, models, checkpoint, threads, progress).find());
  std::vector<std::uint32_t> places(plan.ranges.size());
  std::vector<DataRange> ranges;
  for (std::uint32_t range = 0; range < plan.ranges.size(); ++range) {
    const std::uint32_t first = firsts[range];
    if (first == range) {
      places[range] = static_cast<std::uint32_t>(ranges.size());
      ranges.push_back(plan.ranges[range]);
    } else {
      places[range] = places[first];
    }
  }
  plan.ranges = std::move(ranges);
  for (PlannedTensor& tensor : plan.tensors) {
    if (tensor.range) {
      tensor.range = places[*tensor.range];
    }
  }
  TRY(lay_out(plan, options));
  return plan;
}

}  // namespace onnx_external
