#include "save/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "save/file_names.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> too_many_bytes() {
  return fail(ErrorCode::kCorrupt, "the sizes of all tensors add up to more than 2^64 bytes");
}

// Returns the name from which the file name of a tensor is formed. It must distinguish the graphs
// of a set, because each of them may have its own `val_3`.
std::string file_named_after(const SavePlan& plan, const PlannedTensor& tensor) {
  if (plan.is_of_one()) {
    return tensor.name;
  }
  const std::string_view model = data_stem(plan.models[tensor.model_index].name);
  return tensor.key.empty() ? std::string(model).append(".").append(tensor.name) : tensor.key;
}

Status lay_out_each(SavePlan& plan) {
  std::vector<std::string> names;
  names.reserve(plan.ranges.size());
  for (const DataRange& range : plan.ranges) {
    names.push_back(file_named_after(plan, plan.tensors[range.source_tensor]));
  }
  names = data_file_names(names);
  plan.files.reserve(plan.ranges.size());
  for (std::uint32_t i = 0; i < plan.ranges.size(); ++i) {
    plan.ranges[i].file = i;
    plan.ranges[i].offset = 0;
    plan.files.push_back(PlannedFile{std::move(names[i]), plan.ranges[i].bytes});
  }
  return {};
}

std::uint64_t alignment_of(std::uint64_t bytes, const PlanOptions& options) {
  return options.alignment.value_or(bytes >= kMinPageAlignedBytes ? kPageAlignment
                                                                  : kSmallAlignment);
}

std::uint64_t most_file_bytes(const PlanOptions& options) {
  return options.layout == Layout::kSingle ? std::numeric_limits<std::uint64_t>::max()
                                           : options.max_shard_bytes.value_or(kDefaultShardBytes);
}

std::optional<std::uint64_t> aligned(std::uint64_t offset, std::uint64_t alignment) {
  const auto padded = checked_add(offset, alignment - 1);
  return padded ? std::optional(*padded & ~(alignment - 1)) : std::nullopt;
}

// Puts the ranges one after another. A new file begins when the last one would grow too large.
Status lay_out_in_files(SavePlan& plan, const PlanOptions& options) {
  for (DataRange& range : plan.ranges) {
    const std::uint64_t used = plan.files.empty() ? 0 : plan.files.back().bytes;
    TRY_ASSIGN(const auto offset, offset_behind(used, range.bytes, options));
    const bool fits = !plan.files.empty() && offset;
    if (!fits) {
      plan.files.emplace_back();
    }
    range.file = static_cast<std::uint32_t>(plan.files.size() - 1);
    range.offset = fits ? *offset : 0;
    plan.files.back().bytes = range.offset + range.bytes;
    if (range.bytes > most_file_bytes(options)) {
      plan.oversized.push_back(range.source_tensor);
    }
  }
  return {};
}

// The ranges get no offsets, because these are unknown until the model is serialized.
Status lay_out_inline(SavePlan& plan) {
  if (!plan.ranges.empty()) {
    plan.files.push_back(PlannedFile{plan.models.front().name, 0});
  }
  for (DataRange& range : plan.ranges) {
    range.file = 0;
    range.offset = 0;
    const auto sum = checked_add(plan.files[0].bytes, range.bytes);
    if (!sum) {
      return too_many_bytes();
    }
    plan.files[0].bytes = *sum;
  }
  return {};
}

Status lay_out_beside_model(SavePlan& plan, const PlanOptions& options) {
  const bool is_single = plan.layout == Layout::kSingle;
  TRY(lay_out_in_files(plan, options));
  const std::size_t count = plan.files.size();
  if (count > kMaxShards) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} shards are more than {}; choose a larger shard size", count, kMaxShards));
  }
  const std::string model = plan.is_of_one() ? plan.models.front().name : std::string();
  const DataName name = data_name_of(model, plan.data_name);
  for (std::size_t i = 0; i < count; ++i) {
    plan.files[i].name = is_single ? single_file_name(name, plan.data_dir)
                                   : shard_file_name(name, plan.data_dir, i + 1, count);
  }
  return check_data_file_names(model, plan.data_dir, plan.data_name);
}

}  // namespace

std::size_t SavePlan::written_ranges() const {
  const auto end = std::partition_point(ranges.begin(), ranges.end(), [&](const DataRange& range) {
    return !files[range.file].is_linked;
  });
  return static_cast<std::size_t>(end - ranges.begin());
}

Status check_data_file_names(std::string_view model_name, std::string_view data_dir,
                             std::string_view data_name) {
  const DataName name = data_name_of(model_name, data_name);
  if (!check_relative_location(single_file_name(name, data_dir))) {
    return fail(ErrorCode::kInvalidArgument,
                "model name " + quote(model_name) +
                    ": leads to unsafe names of data files; choose another name");
  }
  return {};
}

Status check_layout_options(const PlanOptions& options) {
  if (options.alignment &&
      (!std::has_single_bit(*options.alignment) || *options.alignment < kMinAlignment ||
       *options.alignment > kMaxAlignment)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("alignment {} is not a power of two from {} to {}", *options.alignment,
                            kMinAlignment, kMaxAlignment));
  }
  return {};
}

Result<std::optional<std::uint64_t>> offset_behind(std::uint64_t used, std::uint64_t bytes,
                                                   const PlanOptions& options) {
  const auto offset = aligned(used, alignment_of(bytes, options));
  const auto end = offset ? checked_add(*offset, bytes) : std::nullopt;
  if (!end) {
    return too_many_bytes();
  }
  return *end <= most_file_bytes(options) ? offset : std::nullopt;
}

Status lay_out(SavePlan& plan, const PlanOptions& options) {
  TRY(check_layout_options(options));
  plan.layout = options.layout;
  if (plan.layout == Layout::kLink) {
    return {};  // save/link.h gives the ranges their places
  }
  plan.files.clear();
  plan.oversized.clear();
  plan.bytes = 0;
  TRY(plan.layout == Layout::kPerTensor ? lay_out_each(plan)
      : plan.layout == Layout::kInline  ? lay_out_inline(plan)
                                        : lay_out_beside_model(plan, options));
  for (const PlannedFile& file : plan.files) {
    const auto sum = checked_add(plan.bytes, file.bytes);
    if (!sum) {
      return too_many_bytes();
    }
    plan.bytes = *sum;
  }
  return {};
}

}  // namespace onnx_external
