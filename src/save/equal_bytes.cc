#include "save/equal_bytes.h"

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
#include "save/part_source.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// Each may hold Checkpoint::kReadScratchBytes.
constexpr int kMaxReaders = 4;

// One search. A part is read for its CRC-32 only when another has its size, and for its SHA-256
// only when another has its size and its CRC.
class EqualParts {
 public:
  EqualParts(const SavePlan& plan, const SourceModels& models, const Checkpoint& checkpoint,
             int threads, const ProgressFn& progress)
      : plan_(plan),
        models_(models),
        checkpoint_(checkpoint),
        threads_(std::min(thread_count(threads), kMaxReaders)),
        progress_(progress),
        groups_(plan.parts.size()) {}

  // For each part the first one with its bytes: itself, or one before it.
  Result<std::vector<std::uint32_t>> find() {
    for (std::uint32_t part = 0; part < plan_.parts.size(); ++part) {
      groups_[part] = std::to_string(plan_.parts[part].bytes);
    }
    TRY(refine([this](std::uint32_t part, ProgressMeter& meter) { return crc_of(part, meter); }));
    TRY(refine([this](std::uint32_t part, ProgressMeter& meter) { return sha_of(part, meter); }));
    NameMap<std::uint32_t> first;
    std::vector<std::uint32_t> firsts;
    for (std::uint32_t part = 0; part < plan_.parts.size(); ++part) {
      firsts.push_back(first.emplace(groups_[part], part).first->second);
    }
    return firsts;
  }

 private:
  const PlannedTensor& source(std::uint32_t part) const {
    return plan_.tensors[plan_.parts[part].source_tensor];
  }

  // Adds to the group of every part that is not alone in it what `digest` says of the part.
  template <typename Digest>
  Status refine(const Digest& digest) {
    NameMap<std::size_t> sizes;
    for (const std::string& group : groups_) {
      ++sizes[group];
    }
    std::vector<std::uint32_t> candidates;
    std::uint64_t bytes = 0;
    for (std::uint32_t part = 0; part < groups_.size(); ++part) {
      if (sizes.at(groups_[part]) > 1) {
        candidates.push_back(part);
        bytes += plan_.parts[part].bytes;
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
  Status read(std::uint32_t part, ProgressMeter& meter, const Take& take) {
    TRY_ASSIGN(const auto read, planned_reader(source(part), models_, checkpoint_));
    IoBuffer buffer;
    return for_each_step(plan_.parts[part].bytes, buffer,
                         [&](std::uint64_t first, std::span<std::byte> chunk) -> Status {
                           TRY(read(first, chunk));
                           take(chunk);
                           return meter.step(chunk.size());
                         });
  }

  Result<std::string> crc_of(std::uint32_t part, ProgressMeter& meter) {
    if (const auto recorded = recorded_crc_of(checkpoint_, source(part))) {
      (void)meter.add(plan_.parts[part].bytes);
      return std::to_string(*recorded);
    }
    if (const auto tiles = planned_tiles(checkpoint_, source(part))) {
      BufferPool::Lease buffer(buffers_);
      TRY_ASSIGN(const auto crc, tiles->read(0, plan_.parts[part].bytes, *buffer,
                                             [&](std::uint64_t, std::span<const std::byte> run) {
                                               return meter.step(run.size());
                                             }));
      return std::to_string(crc);
    }
    Crc32 crc;
    TRY(read(part, meter, [&](std::span<const std::byte> chunk) { crc.update(chunk); }));
    return std::to_string(crc.value());
  }

  Result<std::string> sha_of(std::uint32_t part, ProgressMeter& meter) {
    Sha sha(Sha::Kind::kSha256);
    TRY(read(part, meter, [&](std::span<const std::byte> chunk) { sha.update(chunk); }));
    return sha.hex();
  }

  const SavePlan& plan_;
  SourceModels models_;
  const Checkpoint& checkpoint_;
  int threads_;
  const ProgressFn& progress_;
  BufferPool buffers_{kMaxTiles};
  std::vector<std::string> groups_;  // parts with equal texts may still be equal
};

}  // namespace

Result<SavePlan> merge_equal_bytes(SavePlan plan, const SourceModels& models,
                                   const Checkpoint& checkpoint, const PlanOptions& options,
                                   int threads, const ProgressFn& progress) {
  if (plan.layout == Layout::kLink) {
    return fail(ErrorCode::kInvalidArgument,
                "finding equal bytes saves nothing where nothing is copied; leave it out with "
                "layout link");
  }
  if (options.layout == Layout::kInline) {
    return plan;
  }
  TRY_ASSIGN(const auto firsts, EqualParts(plan, models, checkpoint, threads, progress).find());
  std::vector<std::uint32_t> places(plan.parts.size());
  std::vector<PlannedPart> parts;
  for (std::uint32_t part = 0; part < plan.parts.size(); ++part) {
    const std::uint32_t first = firsts[part];
    if (first == part) {
      places[part] = static_cast<std::uint32_t>(parts.size());
      parts.push_back(plan.parts[part]);
    } else {
      places[part] = places[first];
    }
  }
  plan.parts = std::move(parts);
  for (PlannedTensor& tensor : plan.tensors) {
    if (tensor.part) {
      tensor.part = places[*tensor.part];
    }
  }
  TRY(lay_out(plan, options));
  return plan;
}

}  // namespace onnx_external
