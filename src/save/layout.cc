#include "save/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/character_table.h"
#include "base/checked_math.h"
#include "base/digest.h"
#include "base/name_map.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/manifest.h"

namespace onnx_external {
namespace {

constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kHashSuffixBytes = kHashDigits + 1;  // with its '-'

constexpr CharacterTable kPlainCharacters([](char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
});

bool is_plain_character(char c) {
  return kPlainCharacters.contains(c);
}

bool has_capitals(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

// Windows opens a device for these, whatever follows the first dot.
bool is_device_name(std::string_view lower_name) {
  const std::string_view stem = lower_name.substr(0, lower_name.find('.'));
  static constexpr std::array<std::string_view, 4> kDevices{"con", "prn", "aux", "nul"};
  if (std::find(kDevices.begin(), kDevices.end(), stem) != kDevices.end()) {
    return true;
  }
  return stem.size() == 4 && (stem.starts_with("com") || stem.starts_with("lpt")) &&
         stem[3] >= '0' && stem[3] <= '9';
}

// Hashed names keep this form to themselves: a tensor called like one is hashed too, so that the
// two kinds of names never meet.
bool looks_hashed(std::string_view lower_name) {
  if (lower_name.size() < kHashSuffixBytes) {
    return false;
  }
  const std::string_view suffix = lower_name.substr(lower_name.size() - kHashSuffixBytes);
  return suffix.front() == '-' && std::all_of(suffix.begin() + 1, suffix.end(), is_hex_digit);
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kMaxDataFileNameBytes - kHashSuffixBytes)) {
    const bool dot_after_dot = c == '.' && (out.empty() || out.back() == '.');
    out += is_plain_character(c) && !dot_after_dot ? c : '_';
  }
  if (is_device_name(ascii_lower(out))) {
    out.front() = '_';
  }
  return out;
}

// `duplicate`: how many equal names came before; equal names still get distinct files.
std::string hashed(std::string_view name, std::size_t duplicate) {
  Sha sha(Sha::Kind::kSha256);
  sha.update(std::as_bytes(std::span(name)));
  if (duplicate != 0) {
    const std::string mark = '\0' + std::to_string(duplicate);
    sha.update(std::as_bytes(std::span(mark)));
  }
  return escaped(name) + "-" + sha.hex().substr(0, kHashDigits);
}

bool is_safe(std::string_view name, std::string_view lower_name) {
  return !name.empty() && name.size() <= kMaxDataFileNameBytes && name.front() != '.' &&
         name.back() != '.' && name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), is_plain_character) && lower_name != kManifestName &&
         !is_device_name(lower_name) && !looks_hashed(lower_name);
}

// --- places of ranges --------------------------------------------------------------------------

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

bool is_safe_file_name(std::string_view name) {
  return is_safe(name, ascii_lower(name));
}

std::string hashed_file_name(std::string_view name) {
  return hashed(name, 0);
}

std::string streamed_file_name(std::string_view name) {
  return is_safe_file_name(name) && ascii_lower(name) == name ? std::string(name)
                                                              : hashed_file_name(name);
}

std::vector<std::string> data_file_names(const std::vector<std::string>& names) {
  std::map<std::uint32_t, std::string> folded;  // those that are not in lower case already
  const auto lower_name = [&](std::uint32_t place) {
    const auto found = folded.empty() ? folded.end() : folded.find(place);
    return std::string_view(found == folded.end() ? names[place] : found->second);
  };
  std::vector<bool> has_duplicate(names.size());
  NameIndexSet first_of(lower_name, names.size());
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    if (has_capitals(names[i])) {
      folded.emplace_hint(folded.end(), i, ascii_lower(names[i]));
    }
    if (const std::uint32_t first = first_of.add(i); first != i) {
      has_duplicate[i] = true;
      has_duplicate[first] = true;
    }
  }
  NameMap<std::size_t> seen;
  std::vector<std::string> files;
  files.reserve(names.size());
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    if (!has_duplicate[i] && is_safe(names[i], lower_name(i))) {
      files.push_back(names[i]);
    } else {
      files.push_back(hashed(names[i], seen[names[i]]++));
    }
  }
  return files;
}

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
