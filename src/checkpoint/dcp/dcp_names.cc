#include "checkpoint/dcp/dcp_names.h"

#include <map>
#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/pickle/pickle.h"

namespace onnx_external {
namespace {

constexpr std::size_t kNoItem = static_cast<std::size_t>(-1);
using Part = DcpPath::value_type;

// The tree of the paths. An entry has children or is an item, or both if paths clash.
struct Tree {
  struct Entry {
    std::vector<std::pair<Part, std::size_t>> children;  // in order; indexes into `entries`
    std::map<Part, std::size_t> by_key;                  // the children that are no items
    std::size_t item = kNoItem;
  };
  std::vector<Entry> entries = std::vector<Entry>(1);

  void add(const DcpPath& path, std::size_t item) {
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      const auto [known, is_new] = entries[at].by_key.try_emplace(path[i], entries.size());
      const std::size_t child = known->second;
      if (is_new) {
        entries[at].children.emplace_back(path[i], child);
        entries.emplace_back();
      }
      at = child;
    }
    entries[at].children.emplace_back(path.back(), entries.size());
    entries.emplace_back().item = item;
  }
};

// Writes the tree as a pickle, so that the code for pickles can name these tensors too: a nested
// dict whose leaves are rebuild calls with the index of the item as argument.
class TreePickle {
 public:
  TreePickle(const Tree& tree, const std::vector<DcpItem>& items) : tree_(tree), items_(items) {
    bytes_ = "\x80\x02";
    put_entry(0);
    bytes_ += '.';
  }
  [[nodiscard]] std::string take() && { return std::move(bytes_); }

 private:
  void put_little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      bytes_ += static_cast<char>((value >> (8 * i)) & 0xff);
    }
  }
  void put_integer(std::int64_t value) {  // LONG1 of 8 bytes
    bytes_ += "\x8a\x08";
    put_little_endian(static_cast<std::uint64_t>(value), 8);
  }
  void put_key(const Part& key) {
    if (const auto* text = std::get_if<std::string>(&key)) {
      bytes_ += 'X';
      put_little_endian(text->size(), 4);
      bytes_ += *text;
    } else {
      put_integer(std::get<std::int64_t>(key));
    }
  }
  // Recurses as deep as the longest path, which the metadata reader limits.
  void put_entry(std::size_t index) {
    const Tree::Entry& entry = tree_.entries[index];
    if (entry.item == kNoItem) {
      bytes_ += "}(";
      for (const auto& [key, child] : entry.children) {
        put_key(key);
        put_entry(child);
      }
      bytes_ += 'u';
    } else if (items_[entry.item].is_tensor) {
      bytes_ += "ctorch._utils\n_rebuild_tensor_v2\n";
      put_integer(static_cast<std::int64_t>(entry.item));
      bytes_ += "\x85R";
    } else {
      bytes_ += "ctorch.distributed.checkpoint.metadata\nBytesStorageMetadata\n";
    }
  }

  const Tree& tree_;
  const std::vector<DcpItem>& items_;
  std::string bytes_;
};

}  // namespace

Result<NamedDcpItems> name_dcp_items(const std::vector<DcpItem>& items,
                                     const OpenOptions& options) {
  Tree tree;
  for (std::size_t i = 0; i < items.size(); ++i) {
    tree.add(items[i].path, i);
  }
  TRY_ASSIGN(const auto pickle, Pickle::parse(TreePickle(tree, items).take()));
  TRY_ASSIGN(auto named, name_tensors(pickle, options));
  NamedDcpItems out;
  out.refused = std::move(named.refused);
  for (NamedTensor& tensor : named.tensors) {
    const NodeId argument = pickle.tuple(pickle.arguments(tensor.node))[0];
    out.tensors.push_back(
        {std::move(tensor.name), static_cast<std::uint32_t>(*pickle.integer(argument))});
  }
  for (OpaqueObject& object : named.opaque) {
    out.opaque.push_back({std::move(object.path), "bytes item"});
  }
  return out;
}

}  // namespace onnx_external
