#include "checkpoint/formats/torch_tar.h"

#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/container/tar_members.h"
#include "checkpoint/pickle/pickle_stream.h"
#include "checkpoint/pickle/pickle_text.h"
#include "checkpoint/torch/legacy_file.h"

namespace onnx_external {
namespace {

struct TarStorage {
  std::string module;  // of its class
  std::string name;
  ByteRange place;
  std::uint64_t unit = 1;  // bytes of an element
};

struct TarTensor {
  std::int64_t storage = 0;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

tl::unexpected<Error> corrupt(std::uint64_t at, std::string_view what) {
  return fail(ErrorCode::kCorrupt, "byte " + std::to_string(at) + ": " + std::string(what));
}

// The pickled number of entries that follow.
Result<std::int64_t> read_count(PickleStream& stream) {
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto pickle, stream.next());
  const auto count = pickle.integer(pickle.root());
  if (!count || *count < 0) {
    return corrupt(at, "the number of entries is not a valid int");
  }
  return *count;
}

// Member `storages`: entries of (key, location, class), a number of elements, and their bytes.
class StorageTable {
 public:
  [[nodiscard]] Status read(PickleStream& stream) {
    TRY_ASSIGN(const auto count, read_count(stream));
    for (std::int64_t i = 0; i < count; ++i) {
      TRY(read_entry(stream));
    }
    return read_views(stream);
  }

  [[nodiscard]] const TarStorage* find(std::int64_t key) const {
    const auto found = storages_.find(key);
    return found == storages_.end() ? nullptr : &found->second;
  }

  [[nodiscard]] StorageBlocks blocks() const {
    StorageBlocks blocks;
    for (const auto& [key, storage] : storages_) {
      blocks.emplace(std::to_string(key), storage.place);
    }
    return blocks;
  }

 private:
  [[nodiscard]] Status read_entry(PickleStream& stream) {
    const std::uint64_t at = stream.position();
    TRY_ASSIGN(auto pickle, stream.next());
    const auto parts = pickle.tuple(pickle.root());
    const auto key = parts.size() == 3 ? pickle.integer(parts[0]) : std::nullopt;
    if (!key || pickle.kind(parts[2]) != NodeKind::kGlobal) {
      return corrupt(at, "an entry that is not (key, location, storage class)");
    }
    TRY_ASSIGN(const auto numel, stream.read_int64("the number of elements"));
    TarStorage storage{
        std::string(pickle.module(parts[2])), std::string(pickle.name(parts[2])), {}};
    const NodeId id = pickle.add_storage(storage.module, storage.name, "", numel);
    TRY_ASSIGN_IN("byte " + std::to_string(at), const auto declared, declared_storage(pickle, id));
    storage.unit = byte_size(declared.dtype);
    storage.place = {stream.position(), declared.storage_bytes};
    if (!storages_.emplace(*key, std::move(storage)).second) {
      return corrupt(at, "two storages have the key " + std::to_string(*key));
    }
    return stream.skip(declared.storage_bytes, "a storage's bytes");
  }

  // The list of (key, key of the storage that it is a part of, offset, elements).
  [[nodiscard]] Status read_views(PickleStream& stream) {
    const std::uint64_t at = stream.position();
    TRY_ASSIGN(const auto pickle, stream.next());
    if (pickle.kind(pickle.root()) != NodeKind::kList) {
      return corrupt(at, "the storage views are not a list");
    }
    for (const NodeId id : pickle.elements(pickle.root())) {
      if (!add_view(pickle, pickle.tuple(id))) {
        return corrupt(at,
                       "a storage view that is not (key, storage, offset, size) of a part of it");
      }
    }
    return {};
  }

  [[nodiscard]] bool add_view(const Pickle& pickle, std::span<const NodeId> parts) {
    std::vector<std::int64_t> numbers;
    for (const NodeId part : parts) {
      numbers.push_back(pickle.integer(part).value_or(-1));
    }
    if (numbers.size() != 4 || numbers[2] < 0 || numbers[3] < 0) {
      return false;
    }
    const TarStorage* root = find(numbers[1]);
    const auto offset = static_cast<std::uint64_t>(numbers[2]);
    const auto size = static_cast<std::uint64_t>(numbers[3]);
    if (root == nullptr || !range_fits(offset, size, root->place.length / root->unit)) {
      return false;
    }
    TarStorage view = *root;
    view.place = {root->place.offset + offset * root->unit, size * root->unit};
    return storages_.emplace(numbers[0], std::move(view)).second;
  }

  std::map<std::int64_t, TarStorage> storages_;
};

using TarTensors = std::map<std::int64_t, TarTensor>;

Result<std::vector<std::int64_t>> read_integers(PickleStream& stream, std::int32_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  TRY(stream.read(std::as_writable_bytes(std::span(values)), "sizes and strides"));
  return values;
}

// One entry: (key, storage, class), then the number of dimensions, four unused bytes, sizes,
// strides, offset.
Status read_tensor(PickleStream& stream, TarTensors& tensors) {
  const std::uint64_t at = stream.position();
  TRY_ASSIGN(const auto pickle, stream.next());
  const auto parts = pickle.tuple(pickle.root());
  const auto key = parts.size() == 3 ? pickle.integer(parts[0]) : std::nullopt;
  const auto storage = parts.size() == 3 ? pickle.integer(parts[1]) : std::nullopt;
  if (!key || !storage) {
    return corrupt(at, "an entry that is not (key, storage, tensor class)");
  }
  std::array<std::int32_t, 2> rank{};
  TRY(stream.read(std::as_writable_bytes(std::span(rank)), "a rank"));
  if (rank[0] < 0 || std::cmp_greater(rank[0], kMaxRank)) {
    return corrupt(at, "a tensor of " + std::to_string(rank[0]) + " dimensions");
  }
  auto shape = read_integers(stream, rank[0]);
  TRY_ASSIGN(auto strides, shape ? read_integers(stream, rank[0]) : shape);
  TRY_ASSIGN(const auto offset, stream.read_int64("an offset"));
  const bool is_new =
      tensors.emplace(*key, TarTensor{*storage, offset, *std::move(shape), std::move(strides)})
          .second;
  return is_new ? Status() : corrupt(at, "two tensors have the key " + std::to_string(*key));
}

Result<TarTensors> read_tensors(PickleStream stream) {
  TRY_ASSIGN(const auto count, read_count(stream));
  TarTensors tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    TRY(read_tensor(stream, tensors));
  }
  return tensors;
}

// Replaces keys in the object by the tensors and storages of the tables.
class ObjectLinker {
 public:
  ObjectLinker(Pickle& object, const StorageTable& storages, const TarTensors& tensors)
      : object_(object), storages_(storages), tensors_(tensors) {}

  [[nodiscard]] Status run() {
    const auto count = static_cast<NodeId>(object_.node_count());
    for (NodeId id = 0; id < count; ++id) {
      if (object_.kind(id) != NodeKind::kPersistent) {
        continue;
      }
      TRY_ASSIGN(const auto value, value_of(object_.persistent_id(id)));
      object_.replace(id, value);
    }
    return {};
  }

 private:
  // Returns the value for a persistent id. The id is the key of a tensor or storage in decimal, or
  // (class, source file, source), which stands for the class.
  [[nodiscard]] Result<NodeId> value_of(NodeId id) {
    const auto parts = object_.tuple(id);
    if (!parts.empty() && object_.kind(parts[0]) == NodeKind::kGlobal) {
      return parts[0];
    }
    const auto text = object_.string(id);
    const auto key = text ? parse_number<std::int64_t>(*text) : object_.integer(id);
    if (!key) {
      return fail(
          ErrorCode::kUnsupported,
          "a tar file that torch did not write: a persistent id in its pickle is not a number");
    }
    const auto [known, is_new] = known_.try_emplace(*key, 0);
    if (is_new) {
      TRY_ASSIGN(known->second, make_value(*key));
    }
    return known->second;
  }

  [[nodiscard]] Result<NodeId> make_value(std::int64_t key) {
    const auto tensor = tensors_.find(key);
    const std::int64_t storage_key = tensor == tensors_.end() ? key : tensor->second.storage;
    const TarStorage* storage = storages_.find(storage_key);
    if (storage == nullptr) {
      return fail(ErrorCode::kCorrupt, "the pickle refers to the tensor or storage " +
                                           std::to_string(key) +
                                           ", which is missing; copy or download the file again");
    }
    const auto numel = static_cast<std::int64_t>(storage->place.length / storage->unit);
    const NodeId id =
        object_.add_storage(storage->module, storage->name, std::to_string(storage_key), numel);
    if (tensor == tensors_.end()) {
      return id;
    }
    const NodeId arguments = object_.add_tuple({id, object_.add_integer(tensor->second.offset),
                                                add_integers(tensor->second.shape),
                                                add_integers(tensor->second.strides)});
    return object_.add_call(object_.add_global("torch._utils", "_rebuild_tensor"), arguments);
  }

  [[nodiscard]] NodeId add_integers(const std::vector<std::int64_t>& values) {
    std::vector<NodeId> nodes;
    nodes.reserve(values.size());
    for (const std::int64_t value : values) {
      nodes.push_back(object_.add_integer(value));
    }
    return object_.add_tuple(nodes);
  }

  Pickle& object_;
  const StorageTable& storages_;
  const TarTensors& tensors_;
  std::map<std::int64_t, NodeId> known_;
};

struct Members {
  ByteRange storages;
  ByteRange tensors;
  ByteRange pickle;
};

// Describes a tar file that torch 0.1 did not write.
std::string not_torchs(const std::map<std::string, ByteRange>& members) {
  constexpr std::size_t kShownMembers = 3;
  std::vector<std::string> names;
  for (const auto& [name, place] : members) {
    names.push_back(name);
  }
  return "a tar file, but not a checkpoint of torch 0.1; it contains " +
         (names.empty() ? "no file" : quote_list(names, kShownMembers)) +
         "; if the checkpoint is in it, unpack it first: tar -xf";
}

Result<Members> find_members(const SourceFile& file) {
  TRY_ASSIGN(const auto members, tar_members(file));
  Members found;
  for (const auto& [name, place] :
       {std::pair("storages", &found.storages), std::pair("tensors", &found.tensors),
        std::pair("pickle", &found.pickle)}) {
    const auto member = members.find(name);
    if (member == members.end()) {
      return fail(ErrorCode::kUnsupported, not_torchs(members));
    }
    *place = member->second;
  }
  return found;
}

Result<FileContents> read_members(std::shared_ptr<const SourceFile> file,
                                  const OpenOptions& options) {
  TRY_ASSIGN(const auto members, find_members(*file));
  const auto stream_of = [&](const ByteRange& place) {
    return PickleStream(
        [&](std::uint64_t at, std::span<std::byte> out) { return file->read(at, out); },
        place.offset, place.offset + place.length);
  };
  StorageTable storages;
  PickleStream storage_stream = stream_of(members.storages);
  TRY_IN("member 'storages'", storages.read(storage_stream));
  TRY_ASSIGN_IN("member 'tensors'", const auto tensors, read_tensors(stream_of(members.tensors)));
  TRY_ASSIGN_IN("member 'pickle'", auto object, stream_of(members.pickle).next());
  TRY_IN("member 'pickle'", ObjectLinker(object, storages, tensors).run());
  FileContents part;
  part.format = "torch-tar";
  part.facts.pickle_protocol = object.protocol();
  part.files.push_back(file);
  const StorageBlocks blocks = storages.blocks();
  BlockStorages places(blocks, part);
  TRY(add_all_tensors(
      object, 0, options, [&](const TensorDeclaration& declared) { return places.find(declared); },
      part));
  return part;
}

}  // namespace

Result<FileContents> read_torch_tar(std::shared_ptr<const SourceFile> file,
                                    const OpenOptions& options) {
  const std::string where = file->name();
  TRY_ASSIGN_IN(where, auto part, read_members(std::move(file), options));
  return part;
}

}  // namespace onnx_external
