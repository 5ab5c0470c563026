#include "checkpoint/dcp/dcp_metadata.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/bad_input.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/pickle/walk_budget.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/torch/torch_objects.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxAttributes = 64;
constexpr std::size_t kMaxPathParts = 100;

// True for an object of a class of torch.distributed, whose module differs between versions.
bool is_a(const Pickle& pickle, NodeId id, std::string_view name) {
  if (pickle.kind(id) != NodeKind::kObject) {
    return false;
  }
  const NodeId symbol = pickle.callable(id);
  return pickle.kind(symbol) == NodeKind::kGlobal && pickle.name(symbol) == name &&
         pickle.module(symbol).starts_with("torch.distributed.");
}

// An attribute that BUILD sets; nullopt if it is missing or None.
std::optional<NodeId> attribute(const Pickle& pickle, NodeId object, std::string_view name) {
  for (const NodeId state : pickle.states(object, 2)) {
    for (const auto& [key, value] : pickle.items(state, kMaxAttributes)) {
      if (pickle.string(key) == name) {
        return pickle.kind(value) == NodeKind::kNone ? std::nullopt : std::optional(value);
      }
    }
  }
  return std::nullopt;
}

// Copies at most `most` elements of a tuple, a list, or a torch.Size of one.
std::optional<std::vector<NodeId>> sequence(const Pickle& pickle, NodeId id, std::size_t most) {
  for (int depth = 0; depth < 2; ++depth) {
    if (pickle.kind(id) == NodeKind::kTuple) {
      const std::span<const NodeId> tuple = pickle.tuple(id);
      return std::vector<NodeId>(
          tuple.begin(), tuple.begin() + static_cast<std::ptrdiff_t>(std::min(tuple.size(), most)));
    }
    if (pickle.kind(id) == NodeKind::kList) {
      return pickle.elements(id, most);
    }
    if (pickle.kind(id) != NodeKind::kObject || type_name(pickle, id) != "torch.Size") {
      return std::nullopt;
    }
    const std::span<const NodeId> arguments = pickle.tuple(pickle.arguments(id));
    if (arguments.size() != 1) {
      return std::nullopt;
    }
    id = arguments[0];
  }
  return std::nullopt;
}

Result<std::vector<std::int64_t>> integers(const Pickle& pickle, std::optional<NodeId> id,
                                           std::string_view what) {
  const auto nodes = id ? sequence(pickle, *id, kMaxRank + 1) : std::nullopt;
  if (!nodes || nodes->size() > kMaxRank) {
    return corrupt(std::string(what) + " is not a tuple of at most " + std::to_string(kMaxRank) +
                   " ints");
  }
  std::vector<std::int64_t> values;
  for (const NodeId node : *nodes) {
    const auto value = pickle.integer(node);
    if (!value || *value < 0) {
      return corrupt(std::string(what) + " contains a value that is not a non-negative int");
    }
    values.push_back(*value);
  }
  return values;
}

// An entry of storage_data whose key has an offset; it places one chunk.
struct Place {
  std::string_view name;
  std::vector<std::int64_t> offsets;
  NodeId info = 0;

  [[nodiscard]] auto key() const { return std::tie(name, offsets); }
};

class MetadataReader {
 public:
  explicit MetadataReader(const Pickle& pickle) : pickle_(pickle), budget_(pickle) {}

  [[nodiscard]] Result<std::vector<DcpItem>> run() {
    if (!is_a(pickle_, pickle_.root(), "Metadata")) {
      return fail(ErrorCode::kUnsupported,
                  "not the metadata of a distributed checkpoint: it contains " +
                      (pickle_.kind(pickle_.root()) == NodeKind::kObject
                           ? quote(type_name(pickle_, pickle_.root()))
                           : std::string("a plain value")) +
                      ", not torch.distributed.checkpoint.metadata.Metadata");
    }
    TRY(read_places());
    TRY(read_items());
    TRY(read_paths());
    return std::move(items_);
  }

 private:
  // The items of a dict attribute of the root, charged to the budget.
  [[nodiscard]] Result<std::vector<std::pair<NodeId, NodeId>>> root_dict(std::string_view name) {
    const auto dict = attribute(pickle_, pickle_.root(), name);
    if (!dict || pickle_.kind(*dict) != NodeKind::kDict) {
      return corrupt("its " + std::string(name) + " is not a dict");
    }
    auto items = pickle_.items(*dict);
    TRY(budget_.visit(items.size()));
    return items;
  }

  [[nodiscard]] Status read_places() {
    TRY_ASSIGN(const auto entries, root_dict("storage_data"));
    for (const auto& [key, info] : entries) {
      const auto name_node = is_a(pickle_, key, "MetadataIndex") ? attribute(pickle_, key, "fqn")
                                                                 : std::optional<NodeId>();
      const auto name = name_node ? pickle_.string(*name_node) : std::nullopt;
      if (!name) {
        return corrupt("a key of storage_data is not a MetadataIndex with a name");
      }
      TRY(budget_.visit_text(*name));
      const auto offset = attribute(pickle_, key, "offset");
      if (!offset) {
        continue;  // a bytes item
      }
      TRY_ASSIGN(auto offsets,
                 integers(pickle_, offset, "the offset of a chunk of " + quote(*name)));
      places_.push_back({*name, std::move(offsets), info});
    }
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) { return a.key() < b.key(); });
    const auto duplicate =
        std::adjacent_find(places_.begin(), places_.end(),
                           [](const Place& a, const Place& b) { return a.key() == b.key(); });
    return duplicate == places_.end()
               ? Status()
               : corrupt("tensor " + quote(duplicate->name) + ": two locations for its " +
                         "chunk at " + shape_text(duplicate->offsets));
  }

  [[nodiscard]] Status read_items() {
    TRY_ASSIGN(const auto entries, root_dict("state_dict_metadata"));
    for (const auto& [key, value] : entries) {
      const auto name = pickle_.string(key);
      if (!name) {
        return corrupt("a key of state_dict_metadata is not a string");
      }
      TRY(budget_.visit_text(*name));
      DcpItem item;
      item.name = *name;
      TRY_IN("tensor " + quote(*name), read_item(value, item));
      items_.push_back(std::move(item));
    }
    for (std::uint32_t i = 0; i < items_.size(); ++i) {
      by_name_.push_back(i);
    }
    std::sort(by_name_.begin(), by_name_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return items_[a].name < items_[b].name; });
    const auto duplicate = std::adjacent_find(
        by_name_.begin(), by_name_.end(),
        [&](std::uint32_t a, std::uint32_t b) { return items_[a].name == items_[b].name; });
    return duplicate == by_name_.end()
               ? Status()
               : corrupt("two items have the name " + quote(items_[*duplicate].name));
  }

  [[nodiscard]] Status read_item(NodeId value, DcpItem& item) {
    if (is_a(pickle_, value, "BytesStorageMetadata")) {
      return {};
    }
    if (!is_a(pickle_, value, "TensorStorageMetadata")) {
      return fail(ErrorCode::kUnsupported, "its metadata is " + quote(type_name(pickle_, value)) +
                                               ", which is not supported");
    }
    item.is_tensor = true;
    TRY_ASSIGN(item.shape, integers(pickle_, attribute(pickle_, value, "size"), "its size"));
    read_dtype(attribute(pickle_, value, "properties"), item);
    const auto list = attribute(pickle_, value, "chunks");
    const auto chunks = list ? sequence(pickle_, *list, Pickle::kAll) : std::nullopt;
    if (!chunks) {
      return corrupt("its chunks are not a list");
    }
    constexpr std::uint64_t kChunkCost = 4;  // a chunk has more than twice as many nodes of its own
    TRY(budget_.visit(kChunkCost * chunks->size()));
    for (const NodeId chunk : *chunks) {
      TRY(read_chunk(chunk, item));
    }
    return {};
  }

  // The state of TensorProperties is a tuple that starts with the element type, or a dict in
  // versions of torch that leave pickling to Python.
  void read_dtype(std::optional<NodeId> properties, DcpItem& item) const {
    std::optional<NodeId> node;
    if (properties && is_a(pickle_, *properties, "TensorProperties")) {
      node = attribute(pickle_, *properties, "dtype");
      for (const NodeId state : pickle_.states(*properties, 2)) {
        if (const std::span<const NodeId> parts = pickle_.tuple(state); !parts.empty()) {
          node = parts[0];
        }
      }
    }
    const bool named =
        node && pickle_.kind(*node) == NodeKind::kGlobal && pickle_.module(*node) == "torch";
    const auto dtype = named ? dtype_from_torch_name(pickle_.name(*node)) : std::nullopt;
    if (dtype) {
      item.dtype = *dtype;
    } else {
      item.refusal =
          "element type " + quote(node ? type_name(pickle_, *node) : "?") + " is not supported";
    }
  }

  [[nodiscard]] Status read_chunk(NodeId node, DcpItem& item) {
    if (!is_a(pickle_, node, "ChunkStorageMetadata")) {
      return corrupt("one of its chunks is not a ChunkStorageMetadata");
    }
    auto offsets = integers(pickle_, attribute(pickle_, node, "offsets"), "a chunk's offset");
    TRY_ASSIGN(
        auto sizes,
        offsets ? integers(pickle_, attribute(pickle_, node, "sizes"), "a chunk's size") : offsets);
    if (offsets->size() != item.shape.size() || sizes.size() != item.shape.size()) {
      return corrupt("a chunk of " + std::to_string(sizes.size()) + " dimensions at " +
                     shape_text(*offsets) + " in a tensor of " + std::to_string(item.shape.size()));
    }
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
      return {};
    }
    DcpChunk chunk{.offsets = *std::move(offsets), .sizes = std::move(sizes), .slice = {}};
    TRY_IN("chunk at " + shape_text(chunk.offsets), find_slice(item.name, chunk));
    item.chunks.push_back(std::move(chunk));
    return {};
  }

  [[nodiscard]] Status find_slice(const std::string& name, DcpChunk& chunk) const {
    const Place wanted{.name = name, .offsets = chunk.offsets, .info = 0};
    const auto place =
        std::lower_bound(places_.begin(), places_.end(), wanted,
                         [](const Place& a, const Place& b) { return a.key() < b.key(); });
    if (place == places_.end() || place->key() != wanted.key()) {
      return corrupt("storage_data has no location for it");
    }
    if (!is_a(pickle_, place->info, "_StorageInfo")) {
      return fail(ErrorCode::kUnsupported,
                  "its location is " + quote(type_name(pickle_, place->info)) +
                      ", not torch.distributed.checkpoint.filesystem._StorageInfo");
    }
    if (const auto transform = attribute(pickle_, place->info, "transform_descriptors")) {
      const auto names = sequence(pickle_, *transform, 1);
      if (!names || !names->empty()) {
        const auto first = names ? pickle_.string(names->front()) : std::nullopt;
        return fail(ErrorCode::kUnsupported,
                    "its bytes are transformed (" + quote(first.value_or("?")) +
                        "); save the checkpoint without stream transforms");
      }
    }
    return read_slice(place->info, chunk.slice);
  }

  [[nodiscard]] Status read_slice(NodeId info, DcpSlice& slice) const {
    const auto path = attribute(pickle_, info, "relative_path");
    const auto file = path ? pickle_.string(*path) : std::nullopt;
    if (!file) {
      return corrupt("its file has no name");
    }
    TRY_IN("its file " + quote(*file), check_plain_name(*file));
    slice.file = *file;
    const auto number = [&](std::string_view name) {
      const auto node = attribute(pickle_, info, name);
      return node ? pickle_.integer(*node).value_or(-1) : -1;
    };
    const std::int64_t offset = number("offset");
    const std::int64_t length = number("length");
    if (offset < 0 || length < 0) {
      return corrupt("its offset or length is not a non-negative int");
    }
    slice.offset = static_cast<std::uint64_t>(offset);
    slice.length = static_cast<std::uint64_t>(length);
    return {};
  }

  // planner_data: name -> the path it was flattened from. Other planners store anything here.
  [[nodiscard]] Status read_paths() {
    for (DcpItem& item : items_) {
      item.path = {item.name};
    }
    const auto planner = attribute(pickle_, pickle_.root(), "planner_data");
    if (!planner || pickle_.kind(*planner) != NodeKind::kDict) {
      return {};
    }
    for (const auto& [key, value] : pickle_.items(*planner)) {
      const auto name = pickle_.string(key);
      TRY(budget_.visit_text(name.value_or("")));
      if (name) {
        TRY(read_path(*name, value));
      }
    }
    return {};
  }

  [[nodiscard]] Status read_path(std::string_view name, NodeId value) {
    const auto index = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [&](std::uint32_t item, std::string_view wanted) { return items_[item].name < wanted; });
    const auto parts = sequence(pickle_, value, kMaxPathParts + 1);
    if (index == by_name_.end() || items_[*index].name != name || !parts || parts->empty()) {
      return {};
    }
    if (parts->size() > kMaxPathParts) {
      return fail(ErrorCode::kUnsupported, "planner_data: the path of " + quote(name) +
                                               " has more than " + std::to_string(kMaxPathParts) +
                                               " parts");
    }
    DcpPath path;
    for (const NodeId part : *parts) {
      const auto text = pickle_.string(part);
      TRY(budget_.visit_text(text.value_or("")));
      if (text) {
        path.emplace_back(std::string(*text));
      } else if (const auto number = pickle_.integer(part)) {
        path.emplace_back(*number);
      } else {
        return {};  // a key of another type: use the flat name
      }
    }
    items_[*index].path = std::move(path);
    return {};
  }

  const Pickle& pickle_;
  WalkBudget budget_;
  std::vector<Place> places_;  // sorted
  std::vector<DcpItem> items_;
  std::vector<std::uint32_t> by_name_;  // indexes into items_
};

}  // namespace

Result<std::vector<DcpItem>> parse_dcp_metadata(const Pickle& pickle) {
  return MetadataReader(pickle).run();
}

}  // namespace onnx_external
