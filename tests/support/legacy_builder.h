// Writes legacy torch files and the tar files of torch 0.1, valid or with one false value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/pickle_builder.h"

namespace onnx_external {

inline constexpr std::string_view kLegacyMagicPickle =
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

// The content of the storages in most tests.
inline const std::string kFloats = f32({1, 2, 3, 4});

// A storage of floats in the file.
struct LegacyBlock {
  std::string key;
  std::string bytes;
  std::int64_t count = -1;  // that the block states; by default, the true one
};

struct LegacyOptions {
  std::string magic{kLegacyMagicPickle};
  std::int64_t version = 1001;
  bool dict_as_system_info = true;
  std::string tail = {};  // after the last block
};

// Appends a persistent id of FloatStorage `key`, without BINPERSID.
inline void put_legacy_id(PickleBuilder& pickle, const std::string& key, std::int64_t numel,
                          const std::function<void()>& view = {}) {
  pickle.mark().string("storage").global("torch", "FloatStorage").string(key).string("cpu");
  pickle.integer(numel);
  if (view) {
    view();
  } else {
    pickle.none();
  }
  pickle.tuple();
}

// Appends a one-dimensional tensor that views floats of storage `key`.
inline void put_legacy_tensor(PickleBuilder& pickle, const std::string& key, std::int64_t numel,
                              std::int64_t offset, std::int64_t size,
                              const std::function<void()>& view = {}) {
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  put_legacy_id(pickle, key, numel, view);
  pickle.persistent_id().integer(offset).integers({size}).integers({1});
  pickle.boolean(false).ordered_dict().tuple().reduce();
}

// Returns a legacy file with `object`, which is a complete pickle.
inline std::string legacy_file(const std::string& object, const std::vector<LegacyBlock>& blocks,
                               const LegacyOptions& options = {}) {
  std::string file = options.magic;
  file += PickleBuilder().proto().integer(options.version).stop().bytes();
  PickleBuilder system;
  system.proto();
  if (options.dict_as_system_info) {
    system.empty_dict().string("little_endian").boolean(true).op('s');
  } else {
    system.empty_list();
  }
  file += system.stop().bytes() + object;
  PickleBuilder keys;
  keys.proto().empty_list().mark();
  for (const LegacyBlock& block : blocks) {
    keys.string(block.key);
  }
  file += keys.append_items().stop().bytes();
  for (const LegacyBlock& block : blocks) {
    const auto count = static_cast<std::int64_t>(block.bytes.size() / sizeof(float));
    put_le(file, static_cast<std::uint64_t>(block.count < 0 ? count : block.count), 8);
    file += block.bytes;
  }
  return file + options.tail;
}

// Returns the pickle of {"w": the four floats of storage "7"}.
inline std::string legacy_object() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().string("w");
  put_legacy_tensor(pickle, "7", 4, 0, 4);
  return pickle.op('s').stop().bytes();
}

// Returns a complete file whose object is a storage with `bytes`, as _load_from_bytes expects it.
inline std::string legacy_storage_file(const std::string& bytes) {
  PickleBuilder object;
  object.proto();
  put_legacy_id(object, "1", static_cast<std::int64_t>(bytes.size() / sizeof(float)));
  return legacy_file(object.persistent_id().stop().bytes(), {{"1", bytes}});
}

struct TarMember {
  std::string name;
  std::string content;
};

inline std::string tar_file(const std::vector<TarMember>& members) {
  constexpr std::size_t kBlock = 512;
  std::string file;
  for (const TarMember& member : members) {
    std::string header(kBlock, '\0');
    header.replace(0, member.name.size(), member.name);
    char size[13];
    std::snprintf(size, sizeof(size), "%011zo", member.content.size());
    header.replace(124, 11, size, 11);
    header.replace(148, 8, 8, ' ');
    header[156] = '0';
    header.replace(257, 5, "ustar");
    unsigned sum = 0;
    for (const char c : header) {
      sum += static_cast<unsigned char>(c);
    }
    char text[8];
    std::snprintf(text, sizeof(text), "%06o", sum);
    header.replace(148, 7, text, 7);
    file += header + member.content;
    file.resize((file.size() + kBlock - 1) / kBlock * kBlock);
  }
  return file + std::string(2 * kBlock, '\0');
}

}  // namespace onnx_external
