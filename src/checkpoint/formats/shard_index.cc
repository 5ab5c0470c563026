#include "checkpoint/formats/shard_index.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/name_map.h"
#include "base/parallel.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/storage/computed_storages.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;
constexpr std::size_t kMaxShards = 100'000;
constexpr std::string_view kBlobs = "../../blobs/";
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;

struct ShardMap {
  std::vector<std::string> shards;       // in the order of the index
  OwnedNameMap<std::uint32_t> shard_of;  // tensor -> index into `shards`
};

Result<ShardMap> parse_map(const Json& json) {
  const Json* weight_map = json.object() == nullptr ? nullptr : json.find("weight_map");
  if (weight_map == nullptr || weight_map->object() == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "not a shard index: it has no 'weight_map' from tensor names to files");
  }
  ShardMap map;
  OwnedNameMap<std::uint32_t> known;
  for (const auto& [tensor, value] : *weight_map->object()) {
    const std::string* shard = value.string();
    if (shard == nullptr) {
      return fail(ErrorCode::kCorrupt,
                  "weight_map: the file of tensor " + quote(tensor) + " is not a string");
    }
    const auto [entry, is_new] =
        known.try_emplace(*shard, static_cast<std::uint32_t>(map.shards.size()));
    if (is_new) {
      if (map.shards.size() == kMaxShards) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("weight_map names more than {} files", kMaxShards));
      }
      TRY_IN("weight_map: the file of tensor " + quote(tensor), check_plain_name(*shard));
      map.shards.push_back(*shard);
    }
    map.shard_of.emplace(tensor, entry->second);
  }
  return map;
}

Result<ShardMap> read_map(const SourceFile& index) {
  TRY_ASSIGN(const auto text, read_file(index, kMaxIndexBytes));
  TRY_ASSIGN_IN(index.name(), const auto json, parse_json(text));
  TRY_ASSIGN_IN(index.name(), auto map, parse_map(json));
  return map;
}

// Follows the link `name` in `folder` manually, checking each step.
Result<UniqueFd> open_in_cache(int folder, const std::filesystem::path& folder_path,
                               const std::string& name) {
  const std::string where = (folder_path / name).string();
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(folder, name.c_str(), target.data(), target.size());
  target.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  const std::string blob = target.starts_with(kBlobs) ? target.substr(kBlobs.size()) : "";
  const auto snapshots = std::filesystem::absolute(folder_path).lexically_normal();
  const auto revision = snapshots.has_filename() ? snapshots : snapshots.parent_path();
  if (!check_plain_name(blob) || revision.parent_path().filename() != "snapshots") {
    return fail(ErrorCode::kInvalidArgument,
                where + ": a symbolic link to " + quote(target) +
                    "; only links into the blobs folder of a Hugging Face cache are followed");
  }
  const UniqueFd blobs(::openat(folder, "../../blobs", kOpenFlags | O_DIRECTORY));
  if (!blobs) {
    return fail(errno_error(errno, where + ": cannot open the cache's blobs folder"));
  }
  UniqueFd fd(::openat(blobs.get(), blob.c_str(), kOpenFlags));
  if (!fd) {
    return fail(errno_error(errno, where + ": cannot open blob " + quote(blob)));
  }
  return fd;
}

// Decides about a tensor of shard number `shard`: it is listed, left to the shard that the index
// names, or a duplicate.
class Merger {
 public:
  explicit Merger(const ShardMap& map) : map_(map) {}

  [[nodiscard]] Status keep(FileContents& part, std::uint32_t shard) {
    std::vector<TensorView> kept;
    for (TensorView& tensor : part.tensors) {
      const auto placed = map_.shard_of.find(tensor.name);
      if (placed != map_.shard_of.end() && placed->second != shard) {
        continue;
      }
      const auto [other, is_new] = found_.try_emplace(tensor.name, shard);
      if (!is_new) {
        return fail(ErrorCode::kCorrupt, "tensor " + quote(tensor.name) +
                                             " is not in weight_map and stands in two shards, " +
                                             quote(map_.shards[other->second]) + " and " +
                                             quote(map_.shards[shard]));
      }
      kept.push_back(std::move(tensor));
    }
    for (const RefusedTensor& refused : part.refused) {
      found_.try_emplace(refused.path, shard);
    }
    part.tensors = std::move(kept);
    return {};
  }

  [[nodiscard]] Status check_complete() const {
    for (const auto& [tensor, shard] : map_.shard_of) {
      if (!found_.contains(tensor)) {
        return fail(ErrorCode::kCorrupt, "tensor " + quote(tensor) + " is not in its shard " +
                                             quote(map_.shards[shard]) +
                                             "; download the checkpoint again");
      }
    }
    return {};
  }

 private:
  const ShardMap& map_;
  OwnedNameMap<std::uint32_t> found_;
};

// Shards that are read before any of them is merged: the memory that they may take together is
// limited when they are merged. Never by the number of threads, which must not choose the error.
constexpr std::size_t kShardsAtOnce = 16;

// The contents of the next shards, from `first` on. Functions of the caller's (`options.classes`)
// are called by one thread.
Result<std::deque<FileContents>> read_some_shards(const SourceFile& index, const ShardMap& map,
                                                  std::size_t first, const OpenOptions& options) {
  std::deque<FileContents> read(std::min(kShardsAtOnce, map.shards.size() - first));
  const int threads = options.classes == nullptr ? thread_count(options.threads) : 1;
  TRY(parallel_for(read.size(), threads, [&](std::size_t i, int) -> Status {
    TRY_ASSIGN(auto file, open_shard(index.path().parent_path(), map.shards[first + i]));
    TRY_ASSIGN(read[i], read_checkpoint_file(std::move(file), options));
    return {};
  }));
  return read;
}

}  // namespace

Result<std::shared_ptr<const SourceFile>> open_shard(const std::filesystem::path& folder,
                                                     std::string_view name) {
  TRY(check_plain_name(name));
  const std::filesystem::path base = folder.empty() ? std::filesystem::path(".") : folder;
  const std::filesystem::path path = base / name;
  const UniqueFd directory(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    return fail(errno_error(errno, "open '" + base.string() + "'"));
  }
  UniqueFd fd(::openat(directory.get(), std::string(name).c_str(), kOpenFlags));
  if (!fd && errno == ELOOP) {
    TRY_ASSIGN(fd, open_in_cache(directory.get(), base, std::string(name)));
  }
  if (!fd) {
    return fail(errno_error(errno, "open '" + path.string() + "'"));
  }
  return SourceFile::adopt(std::move(fd), path);
}

Result<FileContents> read_shard_index(const SourceFile& index, const OpenOptions& options) {
  TRY_ASSIGN(const auto map, read_map(index));
  Merger merger(map);
  FileContents whole;
  std::deque<FileContents> read;  // the next shards
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) {
    if (read.empty()) {
      TRY_ASSIGN_IN(index.name(), read, read_some_shards(index, map, shard, options));
    }
    FileContents part = std::move(read.front());
    read.pop_front();
    TRY_IN(index.name(), merger.keep(part, shard));
    const std::string format = "sharded " + part.format;
    if (shard != 0 && format != whole.format) {
      return fail(ErrorCode::kUnsupported, index.name() + ": its shards have different formats");
    }
    whole.format = format;
    append_contents(whole, std::move(part));
    TRY_IN(index.name(), MemoryBudget(whole, options.max_expand).check());
  }
  TRY_IN(index.name(), merger.check_complete());
  if (map.shards.empty()) {
    return fail(ErrorCode::kNotFound, index.name() + ": its weight_map names no tensor");
  }
  return whole;
}

}  // namespace onnx_external
