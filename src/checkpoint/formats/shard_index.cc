#include "checkpoint/formats/shard_index.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <utility>

#include "base/hub_link.h"
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
constexpr std::size_t kMaxListedTensors = 4;
constexpr std::size_t kMostOfMessage = 8;  // members of a server's error message
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;

struct ShardMap {
  std::vector<std::string> shards;       // in the order of the index
  OwnedNameMap<std::uint32_t> shard_of;  // tensor -> index into `shards`
};

// Returns a description of a JSON file that is not an index.
std::string no_weight_map(const Json& json) {
  const auto has = [&](std::string_view key) {
    return json.object() != nullptr && json.find(key) != nullptr;
  };
  for (const std::string_view key : {"error", "message", "detail", "errors"}) {
    const Json* told = has(key) ? json.find(key) : nullptr;
    if (told != nullptr && json.object()->size() <= kMostOfMessage) {
      const Json* inner = told->object() == nullptr ? told : told->find("message");
      const bool has_text = inner != nullptr && inner->string() != nullptr;
      const std::string text = has_text ? *inner->string() : std::string(key);
      return "a server's error message, " + quote(text) +
             "; download the file again, after logging in if it is gated or private";
    }
  }
  if (has("architectures") || has("model_type") || has("_class_name")) {
    return "the config of a model, not its weights; pass its folder, or the file with the weights";
  }
  return "not a shard index: it has no 'weight_map' from tensor names to files";
}

Result<ShardMap> parse_map(const Json& json) {
  const Json* weight_map = json.object() == nullptr ? nullptr : json.find("weight_map");
  if (weight_map == nullptr || weight_map->object() == nullptr) {
    return fail(ErrorCode::kUnsupported, no_weight_map(json));
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

// Merges shards as transformers does: of a tensor in several shards, the last one's by name counts.
class Merger {
 public:
  explicit Merger(const ShardMap& map) : map_(map) {}

  // Removes tensors from the part for shard number `shard` that an earlier part replaces.
  [[nodiscard]] Status keep(FileContents& part, std::uint32_t shard) {
    std::vector<TensorView> kept;
    for (TensorView& tensor : part.tensors) {
      const auto placed = map_.shard_of.find(tensor.name);
      const auto [other, is_new] = found_.try_emplace(tensor.name, Found{shard});
      if (!is_new && placed == map_.shard_of.end()) {
        return fail(ErrorCode::kCorrupt, "tensor " + quote(tensor.name) +
                                             " is not in weight_map and is in two shards, " +
                                             quote(map_.shards[other->second.shard]) + " and " +
                                             quote(map_.shards[shard]));
      }
      other.value().in_place |= placed != map_.shard_of.end() && placed->second == shard;
      if (is_new || map_.shards[other->second.shard] < map_.shards[shard]) {
        has_replaced_ |= !is_new;
        other.value().shard = shard;
        kept.push_back(std::move(tensor));
      }
    }
    for (const DeclaredWeight& weight : part.declared_weights) {
      const auto placed = map_.shard_of.find(weight.name);
      found_.try_emplace(weight.name, Found{shard}).first.value().in_place |=
          placed != map_.shard_of.end() && placed->second == shard;
    }
    for (const RefusedTensor& refused : part.refused) {
      found_.try_emplace(refused.path, Found{shard}).first.value().in_place = true;
    }
    part.tensors = std::move(kept);
    return {};
  }

  [[nodiscard]] Status check_complete() const {
    for (const auto& [tensor, shard] : map_.shard_of) {
      const auto found = found_.find(tensor);
      if (found == found_.end() || !found->second.in_place) {
        return fail(ErrorCode::kCorrupt, "tensor " + quote(tensor) + " is not in its shard " +
                                             quote(map_.shards[shard]) +
                                             "; download the checkpoint again");
      }
    }
    return {};
  }

  // Removes the tensors that later parts replaced.
  void finish(FileContents& whole) const {
    if (has_replaced_) {
      OwnedNameSet names;
      std::vector<TensorView> last;
      for (auto tensor = whole.tensors.rbegin(); tensor != whole.tensors.rend(); ++tensor) {
        if (names.insert(tensor->name).second) {
          last.push_back(std::move(*tensor));
        }
      }
      whole.tensors.assign(std::move_iterator(last.rbegin()), std::move_iterator(last.rend()));
    }
  }

  // Returns what differs from the index; empty if nothing does.
  [[nodiscard]] std::string note() const {
    std::vector<std::string> names;
    for (const auto& [tensor, shard] : map_.shard_of) {
      if (found_.find(tensor)->second.shard != shard) {
        names.push_back(tensor);
      }
    }
    std::sort(names.begin(), names.end());
    return names.empty() ? ""
                         : "several shards contain " + quote_list(names, kMaxListedTensors) +
                               "; as in transformers, the last shard by name is read, and not the "
                               "shard in weight_map";
  }

 private:
  struct Found {
    std::uint32_t shard = 0;  // that is read
    bool in_place = false;    // the shard that the map names has it
  };

  const ShardMap& map_;
  OwnedNameMap<Found> found_;
  bool has_replaced_ = false;
};

// Shards that are read before any of them is merged: the memory that they may take together is
// limited when they are merged. Never by the number of threads, which must not choose the error.
constexpr std::size_t kShardsAtOnce = 16;

// The contents of the next shards, from `first` on. Functions of the caller's (`options.classes`)
// are called by one thread.
Result<std::deque<FileContents>> read_some_shards(const std::filesystem::path& folder,
                                                  const ShardMap& map, std::size_t first,
                                                  const OpenOptions& options) {
  std::deque<FileContents> read(std::min(kShardsAtOnce, map.shards.size() - first));
  const int threads = options.classes == nullptr ? thread_count(options.threads) : 1;
  TRY(parallel_tasks(read.size(), threads, [&](std::size_t i, int) -> Status {
    TRY_ASSIGN(auto file, open_shard(folder, map.shards[first + i]));
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
    TRY_ASSIGN(fd, open_hub_link(directory.get(), base, std::string(name)));
  }
  if (!fd) {
    return fail(errno_error(errno, "open '" + path.string() + "'"));
  }
  return SourceFile::adopt(std::move(fd), path);
}

Result<FileContents> read_shard_index(const SourceFile& index, const std::filesystem::path& folder,
                                      const OpenOptions& options) {
  TRY_ASSIGN(const auto map, read_map(index));
  Merger merger(map);
  FileContents whole;
  std::deque<FileContents> read;  // the next shards
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) {
    if (read.empty()) {
      TRY_ASSIGN_IN(index.name(), read, read_some_shards(folder, map, shard, options));
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
  merger.finish(whole);
  if (const std::string note = merger.note(); !note.empty()) {
    whole.notes.push_back(index.name() + ": " + note);
  }
  if (map.shards.empty()) {
    return fail(ErrorCode::kNotFound, index.name() + ": its weight_map contains no tensors");
  }
  return whole;
}

}  // namespace onnx_external
