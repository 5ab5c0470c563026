#include "checkpoint/torch/legacy_file.h"

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::int64_t kProtocolVersion = 1001;

std::string byte_text(std::uint64_t offset) {
  return "byte " + std::to_string(offset);
}

// Reads what precedes the object: the magic number, the version, and facts about the machine that
// wrote the file. These facts are ignored, as in torch: raw data is always little-endian.
Status read_preamble(PickleStream& stream) {
  TRY(stream.next());
  std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto version, stream.next());
  if (version.integer(version.root()) != kProtocolVersion) {
    return fail(ErrorCode::kUnsupported,
                byte_text(at) + ": a legacy torch file whose protocol version is not " +
                    std::to_string(kProtocolVersion));
  }
  at = stream.position();
  TRY_ASSIGN(const auto system, stream.next());
  if (system.kind(system.root()) != NodeKind::kDict) {
    return fail(ErrorCode::kCorrupt, byte_text(at) + ": the system information is not a dict");
  }
  return {};
}

// A part of a storage that old files give a key of its own.
struct View {
  std::string root;
  std::uint64_t offset = 0;  // bytes
  std::uint64_t length = 0;
};
using Views = std::map<std::string, View>;

// A storage as the first persistent id declares it: its block counts elements of that type.
struct Declared {
  std::uint64_t unit = 0;  // bytes of an element
  std::uint64_t bytes = 0;
  std::size_t number = 0;
};

// Turns the persistent ids of a legacy object into those of today and collects what they say.
class PersistentIds {
 public:
  explicit PersistentIds(Pickle& pickle) : pickle_(pickle) {}

  [[nodiscard]] Status run() {
    const auto count = static_cast<NodeId>(pickle_.node_count());
    for (NodeId id = 0; id < count; ++id) {
      if (pickle_.kind(id) != NodeKind::kPersistent) {
        continue;
      }
      TRY(convert(id));
    }
    return {};
  }

  std::map<std::string, Declared> storages;
  Views views;

 private:
  [[nodiscard]] Status convert(NodeId id) {
    const NodeId tuple = pickle_.persistent_id(id);
    const auto [known, is_new] = converted_.try_emplace(tuple, id);
    if (!is_new) {  // its tuple is no longer what the file spells
      pickle_.replace(id, known->second);
      return {};
    }
    const auto parts = pickle_.tuple(tuple);
    if (parts.size() == 4 && pickle_.string(parts[0]) == "module" &&
        pickle_.kind(parts[1]) == NodeKind::kGlobal) {
      pickle_.replace(id, parts[1]);  // ('module', class, file, source): the class
      return {};
    }
    const NodeId view = parts.size() == 6 ? parts[5] : tuple;
    if (parts.size() == 6) {
      pickle_.shorten_tuple(tuple, 5);
    }
    TRY_ASSIGN_IN("a persistent id", auto root, declared_storage(pickle_, id));
    storages.try_emplace(root.storage_key,
                         Declared{byte_size(root.dtype), root.storage_bytes, storages.size()});
    const bool is_view = view != tuple && pickle_.kind(view) != NodeKind::kNone;
    return is_view ? convert_view(id, view, root) : Status();
  }

  // (view key, offset, size), in elements: the storage is that part of the root.
  [[nodiscard]] Status convert_view(NodeId id, NodeId view, const TensorDeclaration& root) {
    const auto parts = pickle_.tuple(view);
    const std::int64_t offset = parts.size() == 3 ? pickle_.integer(parts[1]).value_or(-1) : -1;
    const std::int64_t size = parts.size() == 3 ? pickle_.integer(parts[2]).value_or(-1) : -1;
    const std::uint64_t unit = byte_size(root.dtype);
    if (offset < 0 || size < 0 ||
        !range_fits(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(size),
                    root.storage_bytes / unit)) {
      return fail(ErrorCode::kCorrupt, "storage " + quote(root.storage_key) +
                                           ": its view metadata is not (key, offset, size) of a "
                                           "part of it");
    }
    // Distinguishes two views of one key here, although torch uses the first view for both. The
    // root's key is not used, because it may be long and shared by many views.
    const std::uint64_t first = static_cast<std::uint64_t>(offset) * unit;
    const std::string key = "view " + std::to_string(storages.at(root.storage_key).number) + ":" +
                            std::to_string(first) + ":" + std::to_string(size);
    views.try_emplace(key, View{root.storage_key, first, static_cast<std::uint64_t>(size) * unit});
    const NodeId type = pickle_.tuple(pickle_.persistent_id(id))[1];
    const std::string module(pickle_.module(type));
    const std::string name(pickle_.name(type));
    pickle_.replace(id, pickle_.add_storage(module, name, key, size));
    return {};
  }

  Pickle& pickle_;
  std::unordered_map<NodeId, NodeId> converted_;  // tuple -> the first persistent id that has it
};

// The keys in the order of their blocks.
Result<std::vector<std::string>> read_keys(PickleStream& stream) {
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto pickle, stream.next());
  if (pickle.kind(pickle.root()) != NodeKind::kList) {
    return fail(ErrorCode::kCorrupt, byte_text(at) + ": the storage keys are not a list");
  }
  std::vector<std::string> keys;
  std::set<std::string, std::less<>> seen;  // one long key may be repeated a million times
  for (const NodeId id : pickle.elements(pickle.root())) {
    const auto number = pickle.integer(id);
    const auto text = pickle.string(id);
    if (!number && !text) {
      return fail(ErrorCode::kCorrupt, byte_text(at) + ": a storage key is not a string");
    }
    const auto [key, is_new] = seen.insert(number ? std::to_string(*number) : std::string(*text));
    if (!is_new) {
      return fail(ErrorCode::kCorrupt,
                  byte_text(at) + ": the list of storages names " + quote(*key) + " twice");
    }
    keys.push_back(*key);
  }
  return keys;
}

// One block: the number of elements, then their bytes, which are skipped.
Result<ByteRange> locate_block(PickleStream& stream, const Declared& declared) {
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto count, stream.read_int64("the number of elements"));
  const std::uint64_t wanted = declared.bytes / declared.unit;
  if (count < 0 || static_cast<std::uint64_t>(count) != wanted) {
    return fail(ErrorCode::kCorrupt, byte_text(at) + ": its block has " + std::to_string(count) +
                                         " elements, but the pickle says " +
                                         std::to_string(wanted));
  }
  const ByteRange place{stream.position(), declared.bytes};
  TRY(stream.skip(declared.bytes, "its bytes"));
  return place;
}

Result<StorageBlocks> locate_blocks(PickleStream& stream, const PersistentIds& ids) {
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto keys, read_keys(stream));
  StorageBlocks blocks;
  for (const std::string& key : keys) {
    const auto declared = ids.storages.find(key);
    if (declared == ids.storages.end()) {
      return fail(ErrorCode::kCorrupt, byte_text(at) + ": the list of storages names " +
                                           quote(key) + ", which no tensor uses");
    }
    TRY_ASSIGN_IN("storage " + quote(key), const auto block,
                  locate_block(stream, declared->second));
    blocks.emplace(key, block);
  }
  for (const auto& [key, declared] : ids.storages) {
    if (!blocks.contains(key)) {
      return fail(ErrorCode::kCorrupt, byte_text(at) + ": the list of storages lacks " +
                                           quote(key) + "; copy or download the file again");
    }
  }
  for (const auto& [key, view] : ids.views) {
    const ByteRange place{blocks.at(view.root).offset + view.offset, view.length};
    if (!blocks.try_emplace(key, place).second) {
      return fail(ErrorCode::kCorrupt, byte_text(at) + ": the list of storages names " +
                                           quote(key) + ", which is the name of a view here");
    }
  }
  return blocks;
}

}  // namespace

Result<LegacyFile> read_legacy_file(PickleStream& stream) {
  TRY(read_preamble(stream));
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(auto object, stream.next());
  PersistentIds ids(object);
  TRY_IN(byte_text(at), ids.run());
  TRY_ASSIGN(auto blocks, locate_blocks(stream, ids));
  return LegacyFile{std::move(object), std::move(blocks)};
}

Result<ByteRange> find_block(const StorageBlocks& blocks, const TensorDeclaration& declared) {
  const auto block = blocks.find(declared.storage_key);
  if (block == blocks.end()) {
    return fail(ErrorCode::kCorrupt, "its storage " + quote(declared.storage_key) +
                                         " is missing; copy or download the file again");
  }
  if (block->second.length != declared.storage_bytes) {
    return fail(ErrorCode::kCorrupt, "its storage " + quote(declared.storage_key) + " has " +
                                         std::to_string(block->second.length) +
                                         " bytes, but the pickle says " +
                                         std::to_string(declared.storage_bytes));
  }
  return block->second;
}

Result<std::uint32_t> BlockStorages::find(const TensorDeclaration& declared) {
  TRY_ASSIGN(const auto block, find_block(blocks_, declared));
  const auto [known, is_new] = storages_.try_emplace(
      declared.storage_key, static_cast<std::uint32_t>(part_.storages.size()));
  if (is_new) {
    part_.storages.push_back({.offset = block.offset,
                              .stored_bytes = block.length,
                              .bytes = block.length,
                              .crc32 = std::nullopt});
  }
  return known->second;
}

}  // namespace onnx_external
