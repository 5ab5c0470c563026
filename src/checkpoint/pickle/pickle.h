// Reads a pickle of protocol 0 to 5 as a graph of inert nodes, without running any code.
//
// Nothing that a pickle names is imported or called. The opcode GLOBAL creates a symbol. REDUCE,
// NEWOBJ, INST and OBJ create an opaque object, which records the symbol and the arguments, and
// BUILD adds a state to that object. The meaning of the symbols is defined in torch_objects.h.
//
// Nodes are indices into an arena. The code therefore never recurses, even for deeply nested
// values, and supports cycles. Every length is checked against the number of remaining bytes before
// it is used. Memory use is at most about 60 bytes per byte of the pickle, and run time is linear.
// Source: Lib/pickle.py and Lib/pickletools.py of CPython.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMaxPickleNodes = 20'000'000;
// Limits the total size of the marks, the stack, the memo and the children of containers, as a
// multiple of the maximum number of nodes.
inline constexpr std::size_t kMaxReferencesPerNode = 2;

using NodeId = std::uint32_t;

enum class NodeKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,     // fits 64 bits
  kBigInteger,  // does not fit into 64 bits; the value is not kept
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  kGlobal,      // a symbol: module and name
  kObject,      // the result of a call that was not made
  kPersistent,  // a persistent id, as torch uses for storages
  kBlock,       // internal: a run of children of a list, dict, set or object
};

// A node in 16 bytes; it is small because a checkpoint has a dozen nodes per tensor. The meaning of
// the fields depends on the kind, so other code uses the member functions of Pickle instead.
struct PickleNode {
  NodeKind kind = NodeKind::kNone;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  std::uint32_t third = 0;

  // Creates a node for a bool, an integer or a float (from its bits). The value is stored in two
  // fields.
  [[nodiscard]] static PickleNode of_number(NodeKind kind, std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    return {.kind = kind,
            .second = static_cast<std::uint32_t>(bits),
            .third = static_cast<std::uint32_t>(bits >> 32U)};
  }
  [[nodiscard]] std::int64_t number() const {
    return static_cast<std::int64_t>(std::uint64_t{third} << 32U | second);
  }
};

// The bytes of one pickle, which is a part of a larger source. Long byte strings may be left out
// (pickle_stream.h).
struct PickleText {
  struct Cut {
    std::size_t at = 0;  // position in `bytes` where the string was left out
    ByteRange place;
  };
  std::string bytes;
  std::uint64_t begin = 0;     // offset of the pickle in its source
  std::vector<Cut> cuts = {};  // in ascending order
  // The maximum number of nodes. It is lower for a compressed pickle, because a small file could
  // expand to many nodes.
  std::size_t max_nodes = kMaxPickleNodes;

  // Converts a position in `bytes` to a position in the source.
  [[nodiscard]] std::uint64_t place(std::size_t position) const;
};

// A parsed pickle. After parsing and editing it is immutable, and several threads may read it.
// Movable.
class Pickle {
 public:
  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);

  // Parses a pickle up to STOP; bytes after it are ignored, as in torch. Fails with kCorrupt and a
  // message "byte N: opcode 'X': ..." for an invalid pickle. Fails with kUnsupported for opcodes
  // that do not occur in checkpoints (EXT, PERSID, out-of-band buffers), for more than
  // PickleText::max_nodes nodes, and for more than kMaxReferencesPerNode times as many references.
  [[nodiscard]] static Result<Pickle> parse(std::string bytes);
  [[nodiscard]] static Result<Pickle> parse(PickleText text);

  [[nodiscard]] NodeId root() const { return root_; }
  // Returns the protocol that the opcode PROTO states, or 0 if there is no such opcode, as in
  // protocols 0 and 1.
  [[nodiscard]] int protocol() const;
  [[nodiscard]] NodeKind kind(NodeId id) const { return nodes_[id].kind; }
  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }

  [[nodiscard]] std::optional<std::int64_t> integer(NodeId id) const;  // not for bools
  [[nodiscard]] std::optional<bool> boolean(NodeId id) const;
  [[nodiscard]] std::optional<double> real(NodeId id) const;              // floats only
  [[nodiscard]] std::optional<std::string_view> string(NodeId id) const;  // UTF-8 is not checked

  // Returns the range of a byte string in the source, or nullopt for other kinds.
  [[nodiscard]] std::optional<ByteRange> bytes_place(NodeId id) const;

  // Returns the bytes of a byte string, or nullopt for other kinds and for strings that were left
  // out.
  [[nodiscard]] std::optional<std::string_view> bytes(NodeId id) const;

  // Returns the elements of a tuple; empty for other kinds.
  [[nodiscard]] std::span<const NodeId> tuple(NodeId id) const;

  [[nodiscard]] bool is_sequence(NodeId id) const {  // a list or a tuple
    return kind(id) == NodeKind::kList || kind(id) == NodeKind::kTuple;
  }

  // Returns a copy of the first `most` elements of a list or set, or of the elements appended to an
  // object.
  [[nodiscard]] std::vector<NodeId> elements(NodeId id, std::size_t most = kAll) const;

  // Returns a copy of the first `most` (key, value) pairs of a dict, or of the items set on an
  // object, in order and including duplicate keys.
  [[nodiscard]] std::vector<std::pair<NodeId, NodeId>> items(NodeId id,
                                                             std::size_t most = kAll) const;

  // Return whether items were set on an object, or elements were appended to it. Requires: kind(id)
  // == kObject.
  [[nodiscard]] bool has_items(NodeId id) const { return parts(id).items.head != 0; }
  [[nodiscard]] bool has_elements(NodeId id) const { return parts(id).elements.head != 0; }

  // Requires: kind(id) == kGlobal.
  [[nodiscard]] std::string_view module(NodeId id) const { return text(nodes_[id].first); }
  [[nodiscard]] std::string_view name(NodeId id) const { return text(nodes_[id].second); }
  [[nodiscard]] std::uint32_t label(NodeId id) const { return nodes_[id].third; }

  // Return the callable and the arguments of the call that would create the object in Python.
  // Requires: kind(id) == kObject.
  [[nodiscard]] NodeId callable(NodeId id) const { return nodes_[id].first; }
  [[nodiscard]] NodeId arguments(NodeId id) const { return nodes_[id].second; }
  // Returns a copy of the first `most` states that BUILD added, in order.
  [[nodiscard]] std::vector<NodeId> states(NodeId id, std::size_t most = kAll) const;

  // Requires: kind(id) == kPersistent.
  [[nodiscard]] NodeId persistent_id(NodeId id) const { return nodes_[id].first; }

  // The functions below edit the pickle. Readers use them to replace nodes by those that current
  // torch writes, or by nodes that are easier to walk. Editing invalidates earlier views and spans.
  [[nodiscard]] NodeId add_integer(std::int64_t value);
  [[nodiscard]] NodeId add_string(std::string_view text);
  [[nodiscard]] NodeId add_global(std::string_view module, std::string_view name);
  [[nodiscard]] NodeId add_tuple(const std::vector<NodeId>& elements);
  [[nodiscard]] NodeId add_dict(const std::vector<std::pair<NodeId, NodeId>>& items);
  [[nodiscard]] NodeId add_call(NodeId callable, NodeId arguments);
  // Adds the persistent id ('storage', module.name, key, 'cpu', numel).
  [[nodiscard]] NodeId add_storage(std::string_view module, std::string_view name,
                                   std::string_view key, std::int64_t numel);
  void replace(NodeId id, NodeId with) { nodes_[id] = nodes_[with]; }
  // Stores a number with a symbol, which label() returns; the initial number is 0. Requires:
  // kind(id) == kGlobal.
  void set_label(NodeId id, std::uint32_t label) { nodes_[id].third = label; }
  void shorten_tuple(NodeId id, std::uint32_t count) { nodes_[id].second = count; }

 private:
  friend class PickleMachine;
  struct Chain {  // a list of kBlock nodes; 0 = none
    NodeId head = 0;
    NodeId tail = 0;
  };
  struct ObjectParts {
    Chain elements;
    Chain items;
    Chain states;
  };
  // The location of the text of a string or byte string, stored in the field `third`.
  enum TextIn : std::uint32_t { kText, kDecoded, kCut };
  [[nodiscard]] std::string_view text(NodeId id) const;
  NodeId add(const PickleNode& node);
  void link(NodeId owner, NodeKind part, NodeId block);  // appends a block of children
  [[nodiscard]] std::vector<NodeId> collect(NodeId head, std::size_t most) const;
  [[nodiscard]] const ObjectParts& parts(NodeId id) const { return objects_[nodes_[id].third]; }

  PickleText text_;      // strings point into it
  std::string decoded_;  // unescaped text of protocol 0
  std::vector<PickleNode> nodes_;
  std::vector<NodeId> children_;
  // All objects without parts, which are most objects, share the first entry.
  std::vector<ObjectParts> objects_ = std::vector<ObjectParts>(1);
  NodeId root_ = 0;
};

}  // namespace onnx_external
