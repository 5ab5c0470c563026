#include "save/copy_steps.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "onnx/inline_data.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

std::vector<std::uint32_t> copy_order(const SavePlan& plan) {
  using Rank = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  std::vector<Rank> ranks;
  ranks.reserve(plan.parts.size());
  std::uint64_t place = 0;  // of the part in its file
  for (const PlannedPart& part : plan.parts) {
    place = part.offset == 0 ? 0 : place + 1;
    ranks.push_back(plan.layout == Layout::kPerTensor
                        ? Rank{std::numeric_limits<std::uint64_t>::max() - part.bytes, 0, 0}
                        : Rank{part.file / kShardsAtOnce, place, part.file});
  }
  std::vector<std::uint32_t> order(plan.parts.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return ranks[a] < ranks[b]; });
  return order;
}

class StepPlanner {
 public:
  StepPlanner(const CopyJob& job, int threads) : job_(job), threads_(threads) {
    out_.files.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.parts.size(); ++i) {
      const PlannedPart& part = job.plan.parts[i];
      FileParts& file = out_.files[part.file];
      ++file.all;
      file.of_others += job.is_of_others(i) ? 1 : 0;
      file.kept += is_kept(i) ? 1 : 0;
      out_.bytes += is_copied(i) ? part.bytes : 0;
    }
  }

  CopySteps plan(bool with_batches) && {
    std::vector<CopyItem> batched;
    for (const std::uint32_t part : copy_order(job_.plan)) {
      if (!is_copied(part)) {
        continue;
      }
      if (with_batches && is_small_file(part)) {
        batched.push_back({part, 0, job_.plan.parts[part].bytes});
      } else {
        add_part(part);
      }
    }
    out_.first_batched = out_.items.size();
    for (std::size_t i = 0; i < out_.items.size(); ++i) {
      out_.steps.push_back({CopyStep::Kind::kCopy, i});
    }
    out_.items.insert(out_.items.end(), batched.begin(), batched.end());
    add_batches();
    return std::move(out_);
  }

 private:
  bool is_kept(std::size_t part) const { return !job_.is_of_others(part) && job_.kept[part]; }
  bool is_copied(std::size_t part) const { return !job_.is_of_others(part) && !job_.kept[part]; }

  bool has_own_file(std::uint32_t part) const {
    return out_.files[job_.plan.parts[part].file].all == 1;
  }

  bool is_small_file(std::uint32_t part) const {
    return job_.plan.layout == Layout::kPerTensor && has_own_file(part) &&
           job_.plan.parts[part].bytes <= kMaxBatchedBytes;
  }

  bool is_split(std::uint32_t part) const {
    const std::uint64_t bytes = job_.plan.parts[part].bytes;
    if (threads_ == 1 || bytes <= kCopyChunkBytes || is_decoded(job_, part) ||
        bytes <= chunk_bytes(job_, part)) {
      return false;
    }
    const std::uint64_t fair_share = out_.bytes / static_cast<std::uint64_t>(threads_);
    return !has_own_file(part) || (bytes > fair_share && job_.options.checksum == Checksum::kNone);
  }

  void add_part(std::uint32_t number) {
    const PlannedPart& part = job_.plan.parts[number];
    const std::size_t before = out_.items.size();
    const bool split = is_split(number);
    const std::uint64_t most = split ? chunk_bytes(job_, number) : part.bytes;
    std::uint64_t first = 0;
    do {  // an empty part is an item, too
      const std::uint64_t length = std::min(most, part.bytes - first);
      out_.items.push_back({number, first, length});
      first += length;
    } while (first < part.bytes);
    const std::size_t pieces = out_.items.size() - before;
    if (split) {
      out_.split.emplace(number, pieces);
    }
    if (split || !has_own_file(number)) {
      out_.shared[part.file] += pieces;
    }
  }

  // One batch ahead: while a thread fills a batch, another one creates the next.
  void add_batches() {
    const std::size_t count = out_.batches();
    for (std::size_t i = 0; i < count; ++i) {
      out_.steps.push_back({CopyStep::Kind::kCreate, i});
      if (i > 0) {
        out_.steps.push_back({CopyStep::Kind::kFill, i - 1});
      }
    }
    if (count > 0) {
      out_.steps.push_back({CopyStep::Kind::kFill, count - 1});
    }
  }

  const CopyJob& job_;
  int threads_;
  CopySteps out_;
};

}  // namespace

std::span<const CopyItem> CopySteps::batch(std::size_t number) const {
  const std::size_t first = first_batched + number * kFilesInBatch;
  return std::span(items).subspan(first, std::min(kFilesInBatch, items.size() - first));
}

std::uint64_t chunk_bytes(const CopyJob& job, std::uint32_t part) {
  const PlannedTensor& tensor = job.plan.tensors[job.plan.parts[part].source_tensor];
  const auto tiles = planned_tiles(job.checkpoint, tensor);
  return tiles ? tiles->piece_bytes(kCopyChunkBytes) : kCopyChunkBytes;
}

bool is_decoded(const CopyJob& job, std::uint32_t part) {
  const PlannedTensor& tensor = job.plan.tensors[job.plan.parts[part].source_tensor];
  return tensor.source == TensorSource::kModelInline &&
         !inline_range(job.model, tensor.source_index);
}

CopySteps plan_copy(const CopyJob& job, int threads, bool with_batches) {
  return StepPlanner(job, threads).plan(with_batches);
}

}  // namespace onnx_external
