#include "checkpoint/pickle/pickle.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace onnx_external {

std::uint64_t PickleText::place(std::size_t position) const {
  const auto next =
      std::upper_bound(cuts.begin(), cuts.end(), position,
                       [](std::size_t wanted, const Cut& cut) { return wanted < cut.at; });
  if (next == cuts.begin()) {
    return begin + position;
  }
  const Cut& cut = *std::prev(next);
  return cut.place.offset + cut.place.length + (position - cut.at);
}

std::optional<std::int64_t> Pickle::integer(NodeId id) const {
  if (nodes_[id].kind != NodeKind::kInteger) {
    return std::nullopt;
  }
  return nodes_[id].number();
}

std::optional<bool> Pickle::boolean(NodeId id) const {
  if (nodes_[id].kind != NodeKind::kBool) {
    return std::nullopt;
  }
  return nodes_[id].number() != 0;
}

std::optional<std::string_view> Pickle::string(NodeId id) const {
  if (nodes_[id].kind != NodeKind::kString) {
    return std::nullopt;
  }
  return text(id);
}

std::optional<double> Pickle::real(NodeId id) const {
  if (nodes_[id].kind != NodeKind::kFloat) {
    return std::nullopt;
  }
  return std::bit_cast<double>(nodes_[id].number());
}

// A text node: `first` = position in the text, or in decoded_, or the index of a cut, as `third`
// says; `second` = size.
std::string_view Pickle::text(NodeId id) const {
  const PickleNode& node = nodes_[id];
  const std::string& source = node.third == kDecoded ? decoded_ : text_.bytes;
  return std::string_view(source).substr(node.first, node.second);
}

int Pickle::protocol() const {
  const std::string& bytes = text_.bytes;
  return bytes.size() >= 2 && bytes[0] == '\x80' ? static_cast<unsigned char>(bytes[1]) : 0;
}

std::optional<std::string_view> Pickle::bytes(NodeId id) const {
  if (nodes_[id].kind != NodeKind::kBytes || nodes_[id].third == kCut) {
    return std::nullopt;
  }
  return text(id);
}

std::optional<ByteRange> Pickle::bytes_place(NodeId id) const {
  const PickleNode& node = nodes_[id];
  if (node.kind != NodeKind::kBytes) {
    return std::nullopt;
  }
  if (node.third == kCut) {
    return text_.cuts[node.first].place;
  }
  return ByteRange{text_.place(node.first), node.second};
}

std::span<const NodeId> Pickle::tuple(NodeId id) const {
  if (kind(id) != NodeKind::kTuple) {
    return {};
  }
  return {children_.data() + nodes_[id].first, nodes_[id].second};
}

std::vector<NodeId> Pickle::elements(NodeId id, std::size_t most) const {
  const PickleNode& node = nodes_[id];
  switch (node.kind) {
    case NodeKind::kList:
    case NodeKind::kSet:
      return collect(node.first, most);
    case NodeKind::kObject:
      return collect(parts(id).elements.head, most);
    default:
      return {};
  }
}

std::vector<std::pair<NodeId, NodeId>> Pickle::items(NodeId id, std::size_t most) const {
  const PickleNode& node = nodes_[id];
  const std::size_t nodes = most > kAll / 2 ? kAll : 2 * most;
  std::vector<NodeId> flat;
  if (node.kind == NodeKind::kDict) {
    flat = collect(node.first, nodes);
  } else if (node.kind == NodeKind::kObject) {
    flat = collect(parts(id).items.head, nodes);
  }
  std::vector<std::pair<NodeId, NodeId>> pairs;
  pairs.reserve(flat.size() / 2);
  for (std::size_t i = 0; i + 1 < flat.size(); i += 2) {
    pairs.emplace_back(flat[i], flat[i + 1]);
  }
  return pairs;
}

std::vector<NodeId> Pickle::states(NodeId id, std::size_t most) const {
  return collect(parts(id).states.head, most);
}

NodeId Pickle::add(const PickleNode& node) {
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Pickle::add_integer(std::int64_t value) {
  return add(PickleNode::of_number(NodeKind::kInteger, value));
}

NodeId Pickle::add_string(std::string_view text) {
  const std::size_t position = decoded_.size();
  decoded_ += text;
  return add({.kind = NodeKind::kString,
              .first = static_cast<std::uint32_t>(position),
              .second = static_cast<std::uint32_t>(text.size()),
              .third = kDecoded});
}

NodeId Pickle::add_global(std::string_view module, std::string_view name) {
  const NodeId module_id = add_string(module);
  const NodeId name_id = add_string(name);
  return add({.kind = NodeKind::kGlobal, .first = module_id, .second = name_id});
}

NodeId Pickle::add_tuple(const std::vector<NodeId>& elements) {
  const std::size_t first = children_.size();
  children_.insert(children_.end(), elements.begin(), elements.end());
  return add({.kind = NodeKind::kTuple,
              .first = static_cast<std::uint32_t>(first),
              .second = static_cast<std::uint32_t>(elements.size())});
}

NodeId Pickle::add_call(NodeId callable, NodeId arguments) {
  return add({.kind = NodeKind::kObject, .first = callable, .second = arguments});
}

NodeId Pickle::add_storage(std::string_view module, std::string_view name, std::string_view key,
                           std::int64_t numel) {
  const NodeId id = add_tuple({add_string("storage"), add_global(module, name), add_string(key),
                               add_string("cpu"), add_integer(numel)});
  return add({.kind = NodeKind::kPersistent, .first = id});
}

NodeId Pickle::add_dict(const std::vector<std::pair<NodeId, NodeId>>& items) {
  const NodeId dict = add({.kind = NodeKind::kDict});
  if (!items.empty()) {
    const NodeId block = add({.kind = NodeKind::kBlock,
                              .first = static_cast<std::uint32_t>(children_.size()),
                              .second = static_cast<std::uint32_t>(2 * items.size())});
    for (const auto& [key, value] : items) {
      children_.insert(children_.end(), {key, value});
    }
    link(dict, NodeKind::kDict, block);
  }
  return dict;
}

void Pickle::link(NodeId owner, NodeKind part, NodeId block) {
  PickleNode& node = nodes_[owner];
  Chain own{.head = node.first, .tail = node.second};
  Chain* chain = &own;
  if (node.kind == NodeKind::kObject) {
    if (node.third == 0) {
      node.third = static_cast<std::uint32_t>(objects_.size());
      objects_.emplace_back();
    }
    ObjectParts& object = objects_[node.third];
    chain = part == NodeKind::kObject ? &object.states
            : part == NodeKind::kDict ? &object.items
                                      : &object.elements;
  }
  if (chain->head == 0) {
    chain->head = block;
  } else {
    nodes_[chain->tail].third = block;
  }
  chain->tail = block;
  if (chain == &own) {
    node.first = own.head;
    node.second = own.tail;
  }
}

std::vector<NodeId> Pickle::collect(NodeId head, std::size_t most) const {
  std::vector<NodeId> all;
  for (NodeId block = head; block != 0 && all.size() < most; block = nodes_[block].third) {
    const std::size_t count = std::min<std::size_t>(nodes_[block].second, most - all.size());
    const auto begin = children_.begin() + static_cast<std::ptrdiff_t>(nodes_[block].first);
    all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

}  // namespace onnx_external
