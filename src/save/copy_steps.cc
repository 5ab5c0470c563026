#include "save/copy_steps.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "onnx/inline_data.h"
#include "save/planned_bytes.h"
#include "save/row_packer.h"

namespace onnx_external {
namespace {

std::vector<std::uint32_t> copy_order(const SavePlan& plan) {
  using Rank = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  std::vector<Rank> ranks;
  ranks.reserve(plan.ranges.size());
  std::uint64_t place = 0;  // of the range in its file
  for (const DataRange& range : plan.ranges) {
    place = range.offset == 0 ? 0 : place + 1;
    ranks.push_back(plan.layout == Layout::kPerTensor
                        ? Rank{std::numeric_limits<std::uint64_t>::max() - range.bytes, 0, 0}
                        : Rank{range.file / kShardsAtOnce, place, range.file});
  }
  std::vector<std::uint32_t> order(plan.ranges.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return ranks[a] < ranks[b]; });
  return order;
}

// Returns the size of the chunks into which a range is split: kCopyChunkBytes, or a similar size
// that is a multiple of whole tiles.
std::uint64_t chunk_bytes(const CopyJob& job, std::uint32_t range) {
  const PlannedTensor& tensor = job.plan.tensors[job.plan.ranges[range].source_tensor];
  const auto tiles = planned_tiles(job.checkpoint, tensor);
  return tiles ? tiles->chunk_bytes(kCopyChunkBytes) : kCopyChunkBytes;
}

// Returns the size of the chunks into which a pass is split, in bytes of the head. It does not
// depend on the number of threads, so that errors are always summed in the same order.
std::uint64_t pass_chunk_bytes(const CopyJob& job, std::uint32_t head) {
  const PlannedTensor& tensor = tensor_of(job.plan, head);
  const DerivedView view = planned_view(job.checkpoint, tensor);
  const RowPacker rows(job.checkpoint, *view, tensor.cast_to, *tensor.packed);
  return rows.chunk_rows(kPassChunkBytes) * rows.row_bytes(tensor.packed->part);
}

class StepPlanner {
 public:
  StepPlanner(const CopyJob& job, int threads) : job_(job), threads_(threads) {
    out_.files.resize(job.plan.files.size());
    for (std::size_t i = 0; i < job.plan.ranges.size(); ++i) {
      const DataRange& range = job.plan.ranges[i];
      FileSteps& file = out_.files[range.file];
      ++file.ranges;
      file.done += job.done[i] ? 1 : 0;
      out_.bytes += is_copied(i) ? range.bytes : 0;
    }
  }

  CopySteps plan() && {
    for (const std::uint32_t range : copy_order(job_.plan)) {
      if (!is_copied(range)) {
        continue;
      }
      if (ranges_of_pass(job_.plan, head_of_pass(job_.plan, range)) == 1) {
        add_range(range);
      } else if (head_of_pass(job_.plan, range) == range) {
        add_pass(range);
      }
    }
    return std::move(out_);
  }

 private:
  // All ranges of a pass are made again if one of them is missing.
  bool is_copied(std::size_t range) const {
    const std::uint32_t head = head_of_pass(job_.plan, static_cast<std::uint32_t>(range));
    const auto first = job_.done.begin() + head;
    return !std::all_of(first, first + static_cast<std::ptrdiff_t>(ranges_of_pass(job_.plan, head)),
                        [](const auto& crc) { return crc.has_value(); });
  }

  bool has_own_file(std::uint32_t range) const {
    return out_.files[job_.plan.ranges[range].file].ranges == 1;
  }

  bool is_split(std::uint32_t range) const {
    const std::uint64_t bytes = job_.plan.ranges[range].bytes;
    if (threads_ == 1 || bytes <= kCopyChunkBytes || is_decoded(job_, range) || is_made(range) ||
        bytes <= chunk_bytes(job_, range)) {
      return false;
    }
    const std::uint64_t fair_share = out_.bytes / static_cast<std::uint64_t>(threads_);
    return !has_own_file(range) || (bytes > fair_share && !may_be_spliced(range));
  }

  // LazyBytes are not split, because only the thread that holds them can copy them.
  bool is_made(std::uint32_t range) const {
    const PlannedTensor& tensor = job_.plan.tensors[job_.plan.ranges[range].source_tensor];
    return kind_of_source(job_.checkpoint, tensor) == StorageKind::kMade;
  }

  // One thread splices faster than several fill a file through buffers (copy_steps.h).
  bool may_be_spliced(std::uint32_t range) const {
    const PlannedTensor& tensor = job_.plan.tensors[job_.plan.ranges[range].source_tensor];
    return recorded_crc_of(job_.checkpoint, tensor).has_value();
  }

  void add_range(std::uint32_t number) {
    const DataRange& range = job_.plan.ranges[number];
    const std::size_t before = out_.items.size();
    const bool split = is_split(number);
    const std::uint64_t most = split ? chunk_bytes(job_, number) : range.bytes;
    std::uint64_t first = 0;
    do {  // an empty range is also an item
      const std::uint64_t length = std::min(most, range.bytes - first);
      out_.items.push_back({number, first, length});
      first += length;
    } while (first < range.bytes);
    const std::size_t chunks = out_.items.size() - before;
    if (split) {
      out_.split[number] = {most, chunks};
    }
    out_.files[range.file].items += chunks;
  }

  void add_pass(std::uint32_t head) {
    const std::uint64_t bytes = job_.plan.ranges[head].bytes;
    const std::uint64_t most = is_made(head) ? bytes : pass_chunk_bytes(job_, head);
    const std::size_t before = out_.items.size();
    for (std::uint64_t first = 0; first < bytes; first += most) {
      out_.items.push_back({head, first, std::min(most, bytes - first)});
    }
    const std::size_t chunks = out_.items.size() - before;
    out_.split[head] = {most, chunks};
    for (std::size_t part = 0; part < ranges_of_pass(job_.plan, head); ++part) {
      out_.files[job_.plan.ranges[head + part].file].items += chunks;
    }
  }

  const CopyJob& job_;
  int threads_;
  CopySteps out_;
};

}  // namespace

bool is_decoded(const CopyJob& job, std::uint32_t range) {
  const PlannedTensor& tensor = job.plan.tensors[job.plan.ranges[range].source_tensor];
  return tensor.source == TensorSource::kModelInline &&
         !inline_range(job.models.of(tensor), tensor.source_index);
}

CopySteps plan_copy(const CopyJob& job, int threads) {
  return StepPlanner(job, threads).plan();
}

}  // namespace onnx_external
