#include "checkpoint/assembly/nested_storages.h"

#include <span>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/pickle/pickle_stream.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "checkpoint/torch/torch_records.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

constexpr std::string_view kZipStart = "PK\x03\x04";

// The prefix of the keys of nested storages.
constexpr std::string_view kNestedKey = "_load_from_bytes ";

// A storage of the file itself with such a key would be mistaken for a nested one.
Status check_own_key(const Pickle& pickle, NodeId id) {
  constexpr std::size_t kKey = 2;  // ('storage', class, key, ...)
  const Arguments parts = pickle.tuple(pickle.persistent_id(id));
  const auto key = parts.size() > kKey ? pickle.string(parts[kKey]) : std::nullopt;
  return key && key->starts_with(kNestedKey)
             ? Status(corrupt("storage " + quote(*key) + " has the name of a nested storage"))
             : Status();
}

// The argument of a call of torch.storage._load_from_bytes.
std::optional<NodeId> loaded_from(const Pickle& pickle, NodeId id) {
  if (call_of(pickle, id) != Call::kLoadFromBytes) {
    return std::nullopt;
  }
  const Arguments arguments = pickle.tuple(pickle.arguments(id));
  return arguments.size() == 1 ? std::optional(arguments[0]) : std::nullopt;
}

}  // namespace

Status NestedStorages::resolve(Pickle& pickle) {
  const auto count = static_cast<NodeId>(pickle.node_count());
  for (NodeId id = 0; id < count; ++id) {
    const NodeKind kind = pickle.kind(id);
    TRY(kind == NodeKind::kPersistent ? check_own_key(pickle, id)
        : kind == NodeKind::kObject   ? resolve_call(pickle, id)
                                      : Status());
  }
  return {};
}

Status NestedStorages::resolve_call(Pickle& pickle, NodeId id) {
  const auto argument = loaded_from(pickle, id);
  const auto bytes = argument ? spelled_bytes(pickle, *argument) : std::nullopt;
  if (!bytes) {
    return {};
  }
  const auto [known, is_new] = known_.try_emplace(*bytes);
  if (is_new) {
    const auto source = source_of(pickle, *bytes);
    const auto storage =
        source ? read_nested(pickle, *source) : fail(ErrorCode::kUnsupported, "no bytes");
    if (!storage && storage.error().code != ErrorCode::kUnsupported) {
      return fail(storage.error());
    }
    known->second = storage ? std::optional(*storage) : std::nullopt;
  }
  if (known->second) {
    pickle.replace(id, *known->second);
  }
  return {};
}

std::optional<NestedStorages::Source> NestedStorages::source_of(const Pickle& pickle,
                                                                const SpelledBytes& bytes) const {
  if (const auto place = pickle.bytes_place(bytes.node); place && text_offset_) {
    return Source{nullptr, {*text_offset_ + place->offset, place->length}};
  }
  auto copy = copy_bytes(pickle, bytes);
  if (!copy) {
    return std::nullopt;
  }
  const std::uint64_t length = copy->size();
  return Source{std::make_shared<const std::string>(*std::move(copy)), {0, length}};
}

// Makes a persistent id for the only storage of the nested file.
Result<NodeId> NestedStorages::read_nested(Pickle& pickle, const Source& source) {
  const std::string where =
      source.memory ? "nested torch file"
                    : "byte " + std::to_string(source.place.offset) + ": nested torch file";
  TRY_ASSIGN_IN(where, const auto file, read_file(source));
  const NodeId type = file.object.tuple(file.object.persistent_id(file.object.root()))[1];
  const std::string key = std::string(kNestedKey) + std::to_string(storages_.size());
  const std::uint64_t numel = file.declared.storage_bytes / byte_size(file.declared.dtype);
  storages_.emplace(key, Nested{source.memory, file.storage, std::nullopt});
  return pickle.add_storage(file.object.module(type), file.object.name(type), key,
                            static_cast<std::int64_t>(numel));
}

Result<NestedStorages::NestedFile> NestedStorages::read_file(const Source& source) const {
  const std::shared_ptr<const SourceFile>& file = part_.files.front();
  const ReadSource read = source.memory
                              ? memory_source(source.memory)
                              : ReadSource([&](std::uint64_t at, std::span<std::byte> out) {
                                  return file->read(at, out);
                                });
  PickleStream stream(read, source.place.offset, source.place.offset + source.place.length);
  TRY_ASSIGN(const auto head, stream.peek(kLegacyHeadBytes));
  if (is_legacy_torch(head)) {
    return read_legacy(stream);
  }
  if (head.starts_with(kZipStart) && !source.memory) {
    return read_zip(file, source.place);
  }
  return unsupported("not what torch.save writes");
}

Result<NestedStorages::NestedFile> NestedStorages::read_legacy(PickleStream& stream) {
  TRY_ASSIGN(auto file, read_legacy_file(stream));
  TRY_ASSIGN(auto declared, declared_storage(file.object, file.object.root()));
  TRY_ASSIGN(const auto block, find_block(file.blocks, declared));
  const Storage storage{.offset = block.offset,
                        .stored_bytes = block.length,
                        .bytes = block.length,
                        .crc32 = std::nullopt};
  return NestedFile{std::move(file.object), std::move(declared), storage};
}

Result<NestedStorages::NestedFile> NestedStorages::read_zip(
    const std::shared_ptr<const SourceFile>& whole, const ByteRange& place) {
  TRY_ASSIGN(auto slice, SourceFile::slice(whole, place.offset, place.length));
  TRY_ASSIGN(const auto zip, ZipArchive::open(std::move(slice)));
  TRY_ASSIGN(const auto order, read_byte_order(zip));
  TRY_ASSIGN(auto object, read_pickle_record(zip, "data.pkl"));
  TRY_ASSIGN(auto declared, declared_storage(object, object.root()));
  FileContents part;
  TRY_ASSIGN(const auto index, RecordStorages(zip, order, part)
                                   .find("data/" + declared.storage_key, declared.storage_bytes));
  part.storages[index].offset += place.offset;
  return NestedFile{std::move(object), std::move(declared), part.storages[index]};
}

std::optional<Result<std::uint32_t>> NestedStorages::find(const TensorDeclaration& declared) {
  const auto found = storages_.find(declared.storage_key);
  if (found == storages_.end()) {
    return std::nullopt;
  }
  Nested& nested = found->second;
  if (nested.storage.bytes != declared.storage_bytes) {
    return fail(ErrorCode::kCorrupt, "the size of its nested storage is not the declared size");
  }
  if (!nested.index) {
    nested.index = add_storage(nested);
  }
  return *nested.index;
}

std::uint32_t NestedStorages::add_storage(const Nested& nested) {
  const auto index = static_cast<std::uint32_t>(part_.storages.size());
  Storage storage = nested.storage;
  if (nested.memory) {
    part_.computed.emplace(index, memory_source(nested.memory, storage.offset));
    storage.offset = 0;
    storage.computed = true;
  }
  part_.storages.push_back(storage);
  return index;
}

}  // namespace onnx_external
