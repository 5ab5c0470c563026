#include "checkpoint/nested_storages.h"

#include <cstring>
#include <span>
#include <utility>

#include "base/text.h"
#include "checkpoint/module_names.h"
#include "checkpoint/pickle_stream.h"
#include "checkpoint/pickle_text.h"
#include "checkpoint/tensor_declaration.h"

namespace onnx_external {
namespace {

bool is_symbol(const Pickle& pickle, NodeId id, std::string_view module, std::string_view name) {
  return pickle.kind(id) == NodeKind::kGlobal && pickle.module(id) == module &&
         pickle.name(id) == name;
}

// The arguments of a call of module.name; none for anything else.
std::span<const NodeId> call_arguments(const Pickle& pickle, NodeId id, std::string_view module,
                                       std::string_view name) {
  if (pickle.kind(id) != NodeKind::kObject ||
      !is_symbol(pickle, pickle.callable(id), module, name)) {
    return {};
  }
  return pickle.tuple(pickle.arguments(id));
}

// The string of _codecs.encode(string, 'latin1'): how protocols 0 to 2 spell bytes.
std::optional<NodeId> encoded_text(const Pickle& pickle, NodeId id) {
  const auto arguments = call_arguments(pickle, id, "_codecs", "encode");
  if (arguments.size() != 2 || !pickle.string(arguments[0])) {
    return std::nullopt;
  }
  const auto encoding = pickle.string(arguments[1]);
  return encoding == "latin1" || encoding == "latin-1" ? std::optional(arguments[0]) : std::nullopt;
}

ReadSource memory_reader(std::shared_ptr<const std::string> memory, std::uint64_t offset) {
  return
      [memory = std::move(memory), offset](std::uint64_t at, std::span<std::byte> out) -> Status {
        std::memcpy(out.data(), memory->data() + offset + at, out.size());
        return {};
      };
}

}  // namespace

Status NestedStorages::resolve(Pickle& pickle) {
  const auto count = static_cast<NodeId>(pickle.node_count());
  for (NodeId id = 0; id < count; ++id) {
    if (auto status = resolve_call(pickle, id); !status) {
      return status;
    }
  }
  return {};
}

Status NestedStorages::resolve_call(Pickle& pickle, NodeId id) {
  const auto arguments = call_arguments(pickle, id, "torch.storage", "_load_from_bytes");
  if (arguments.size() != 1) {
    return {};
  }
  const auto encoded = encoded_text(pickle, arguments[0]);
  const NodeId bytes = encoded.value_or(arguments[0]);
  const auto [known, is_new] = known_.try_emplace(bytes);
  if (is_new) {
    const auto source = source_of(pickle, bytes, encoded.has_value());
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

std::optional<NestedStorages::Source> NestedStorages::source_of(const Pickle& pickle, NodeId bytes,
                                                                bool is_encoded) const {
  if (const auto place = pickle.bytes_place(bytes); place && text_offset_) {
    return Source{nullptr, {*text_offset_ + place->offset, place->length}};
  }
  std::optional<std::string> copy;
  if (const auto content = pickle.bytes(bytes)) {
    copy = std::string(*content);
  } else if (const auto text = pickle.string(bytes)) {  // not encoded: Python 2's str
    copy = is_encoded ? latin1_bytes(*text) : std::string(*text);
  }
  if (!copy) {
    return std::nullopt;
  }
  const std::uint64_t length = copy->size();
  return Source{std::make_shared<const std::string>(*std::move(copy)), {0, length}};
}

// Makes a persistent id for the one storage that the nested file holds.
Result<NodeId> NestedStorages::read_nested(Pickle& pickle, const Source& source) {
  const std::string where =
      source.memory ? "nested torch file"
                    : "byte " + std::to_string(source.place.offset) + ": nested torch file";
  const ReadSource read = source.memory
                              ? memory_reader(source.memory, 0)
                              : ReadSource([&](std::uint64_t at, std::span<std::byte> out) {
                                  return part_.files.front()->read(at, out);
                                });
  PickleStream stream(read, source.place.offset, source.place.offset + source.place.length);
  auto head = stream.peek(kLegacyHeadBytes);
  if (!head) {
    return fail_in(where, std::move(head).error());
  }
  if (!is_legacy_torch(*head)) {
    return fail(ErrorCode::kUnsupported, where + ": not a legacy torch file");
  }
  const auto file = read_legacy_file(stream);
  if (!file) {
    return fail_in(where, file.error());
  }
  const NodeId root = file->object.root();
  const auto declared = declared_storage(file->object, root);
  const auto block = declared ? find_block(file->blocks, *declared) : fail(declared.error());
  if (!block) {
    return fail_in(where, block.error());
  }
  const NodeId type = file->object.tuple(file->object.persistent_id(root))[1];
  const std::string key = "_load_from_bytes " + std::to_string(storages_.size());
  const std::uint64_t numel = declared->storage_bytes / byte_size(declared->dtype);
  storages_.emplace(key, Nested{source.memory, *block, std::nullopt});
  return pickle.add_storage(file->object.module(type), file->object.name(type), key,
                            static_cast<std::int64_t>(numel));
}

std::optional<Result<std::uint32_t>> NestedStorages::find(const TensorDeclaration& declared) {
  const auto found = storages_.find(declared.storage_key);
  if (found == storages_.end()) {
    return std::nullopt;
  }
  Nested& nested = found->second;
  if (nested.place.length != declared.storage_bytes) {
    return fail(ErrorCode::kCorrupt, "its nested storage has another size than declared");
  }
  if (!nested.index) {
    nested.index = add_storage(nested);
  }
  return *nested.index;
}

std::uint32_t NestedStorages::add_storage(const Nested& nested) {
  const auto index = static_cast<std::uint32_t>(part_.storages.size());
  Storage storage{.offset = nested.place.offset,
                  .stored_bytes = nested.place.length,
                  .bytes = nested.place.length,
                  .crc32 = std::nullopt};
  if (nested.memory) {
    storage.offset = 0;
    storage.computed = true;
    part_.computed.emplace(index, memory_reader(nested.memory, nested.place.offset));
  }
  part_.storages.push_back(storage);
  return index;
}

Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                       const OpenOptions& options, const FindStorage& find, CheckpointPart& part) {
  NestedStorages nested(text_offset, part);
  auto status = nested.resolve(pickle);
  status = status ? expand_modules(pickle, options.selection) : status;
  if (!status) {
    return status;
  }
  auto named = name_tensors(pickle, options);
  if (!named) {
    return fail(std::move(named).error());
  }
  return add_tensors(
      pickle, *std::move(named), options,
      [&](const TensorDeclaration& declared) {
        auto inner = nested.find(declared);
        return inner ? *std::move(inner) : find(declared);
      },
      part);
}

}  // namespace onnx_external
