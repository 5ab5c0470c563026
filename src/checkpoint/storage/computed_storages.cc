#include "checkpoint/storage/computed_storages.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/remedy.h"

namespace onnx_external {

Status MemoryBudget::take(std::uint64_t count, std::uint64_t each) {
  const auto bytes = checked_mul(count, each);
  const auto kept = bytes ? checked_add(part_.kept_bytes, *bytes) : std::nullopt;
  if (!kept || (*kept > kAlwaysExpandedBytes && *kept > most())) {
    return fail_with(
        ErrorCode::kUnsupported,
        "the part of it that has to be kept in memory or summed up is larger than its file allows",
        {{RemedyOption::kMaxExpand, "N", "to allow N times the size, if the file is trusted"}});
  }
  part_.kept_bytes = *kept;
  return {};
}

std::uint64_t MemoryBudget::most() const {
  std::uint64_t files = 0;
  for (const auto& file : part_.files) {
    files += file->size();
  }
  return checked_mul(files, std::max<std::uint64_t>(max_expand_, 1))
      .value_or(std::numeric_limits<std::uint64_t>::max());
}

std::uint32_t add_computed(FileContents& part, std::uint64_t bytes, ReadSource source,
                           std::vector<std::uint32_t> from) {
  const auto index = static_cast<std::uint32_t>(part.storages.size());
  part.storages.push_back({.file = from.empty() ? 0 : part.storages[from.back()].file,
                           .bytes = bytes,
                           .crc32 = {},
                           .computed = true});
  part.computed.emplace(index, std::move(source));
  if (!from.empty()) {
    part.made_of.emplace(index, std::move(from));
  }
  return index;
}

std::vector<std::uint32_t> sources_of(const FileContents& all, std::uint32_t storage) {
  std::vector<std::uint32_t> sources;
  std::unordered_set<std::uint32_t> seen{storage};
  std::vector<std::uint32_t> left{storage};
  while (!left.empty()) {
    const std::uint32_t next = left.back();
    left.pop_back();
    const auto parts = all.made_of.find(next);
    if (parts == all.made_of.end() || all.quantized.contains(next)) {
      sources.push_back(next);
      continue;
    }
    for (const std::uint32_t part : parts->second) {
      if (seen.insert(part).second) {
        left.push_back(part);
      }
    }
  }
  return sources;
}

ReadSource memory_source(std::shared_ptr<const std::string> memory, std::uint64_t offset) {
  return
      [memory = std::move(memory), offset](std::uint64_t at, std::span<std::byte> out) -> Status {
        assert(offset <= memory->size() && range_fits(at, out.size(), memory->size() - offset));
        std::memcpy(out.data(), memory->data() + offset + at, out.size());
        return {};
      };
}

}  // namespace onnx_external
