#include "evidence/graph_tensors.h"

#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/graph_facts.h"
#include "onnx/inline_data.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kSeveral = 0xFFFFFFFF;
constexpr std::uint32_t kNone = 0xFFFFFFFF;

using PlacedName = std::pair<std::uint32_t, std::string_view>;  // graph, name

// Finds the slot that a kIdentityOutput slot reads: the one in its own graph, or the only one of
// that name.
class SlotFinder {
 public:
  explicit SlotFinder(const GraphFacts& graph) : graph_(graph), roots_(graph.slots.size()) {
    for (std::uint32_t i = 0; i < graph.slots.size(); ++i) {
      own_.emplace(PlacedName(graph.slots[i].graph, graph.slots[i].name), i);
      const auto [entry, fresh] = any_.emplace(graph.slots[i].name, i);
      if (!fresh) {
        entry.value() = kSeveral;
      }
    }
  }

  // The slot from which `slot` has its data; nullopt in a cycle.
  [[nodiscard]] std::optional<std::uint32_t> root(std::uint32_t slot) {
    std::vector<std::uint32_t> path;
    while (!roots_[slot]) {
      const bool is_root = graph_.slots[slot].kind != SlotKind::kIdentityOutput;
      roots_[slot] = is_root ? slot : kNone;  // a cycle ends here
      const auto next = is_root ? std::nullopt : source_of(graph_.slots[slot]);
      if (!is_root) {
        path.push_back(slot);
      }
      slot = next.value_or(slot);
    }
    for (const std::uint32_t each : path) {
      roots_[each] = roots_[slot];
    }
    return *roots_[slot] == kNone ? std::nullopt : roots_[slot];
  }

 private:
  [[nodiscard]] std::optional<std::uint32_t> source_of(const Slot& identity) const {
    const auto own = own_.find(PlacedName(identity.graph, identity.merged_into));
    if (own != own_.end()) {
      return own->second;
    }
    const auto any = any_.find(identity.merged_into);
    return any != any_.end() && any->second != kSeveral ? std::optional(any->second) : std::nullopt;
  }

  const GraphFacts& graph_;
  std::vector<std::optional<std::uint32_t>> roots_;  // of the slots asked for; kNone: there is none
  std::map<PlacedName, std::uint32_t> own_;
  NameMap<std::uint32_t> any_;
};

Result<ByteStream> external_stream(const Model& model, const ExternalTensor& external,
                                   const Checkpoint& checkpoint) {
  if (is_in_memory(model, external)) {
    TRY_ASSIGN(const auto tensor, CheckpointAccess::given_tensor(checkpoint, external.offset));
    return key_stream(checkpoint, tensor);
  }
  TRY_ASSIGN(auto file, open_external(model, external));
  return ByteStream{external.length, [file = std::move(file),
                                      at = external.offset](std::span<std::byte> out) mutable {
                      return file->read(std::exchange(at, at + out.size()), out);
                    }};
}

}  // namespace

std::vector<GraphTensor> graph_tensors(const Model& model) {
  std::vector<GraphTensor> tensors;
  tensors.reserve(model.external_tensors().size() + model.inline_tensors().size());
  for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
    tensors.push_back({&model.external_tensors()[i], nullptr, i});
  }
  for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
    tensors.push_back({nullptr, &model.inline_tensors()[i], i});
  }
  return tensors;
}

Result<ByteStream> graph_stream(const Model& model, const GraphTensor& tensor,
                                const Checkpoint& checkpoint) {
  if (tensor.external != nullptr) {
    return external_stream(model, *tensor.external, checkpoint);
  }
  auto reader = InlineReader::open(model, tensor.index);
  if (!reader) {
    return fail_in("tensor " + quote(tensor.name()), std::move(reader).error());
  }
  const auto shared = std::make_shared<InlineReader>(*std::move(reader));
  return ByteStream{
      shared->nbytes(), [shared, name = tensor.name()](std::span<std::byte> out) {
        Status status = shared->read(out);
        return status ? status
                      : Status(fail_in("tensor " + quote(name), std::move(status).error()));
      }};
}

std::vector<std::optional<std::uint32_t>> tensor_of_slots(
    const GraphFacts& graph, const std::vector<GraphTensor>& graph_tensors) {
  std::map<PlacedName, std::uint32_t> initializers;
  for (std::uint32_t i = 0; i < graph_tensors.size(); ++i) {
    if (graph_tensors[i].place() == TensorPlace::kInitializer) {
      initializers.emplace(PlacedName(graph_tensors[i].graph(), graph_tensors[i].name()), i);
    }
  }
  std::vector<std::optional<std::uint32_t>> places(graph.slots.size());
  if (initializers.empty()) {  // nothing to find; saves 20 ms for 40,000 slots
    return places;
  }
  SlotFinder finder(graph);
  for (std::uint32_t slot = 0; slot < graph.slots.size(); ++slot) {
    const auto root = finder.root(slot);
    if (!root) {
      continue;
    }
    const auto found =
        initializers.find(PlacedName(graph.slots[*root].graph, graph.slots[*root].name));
    if (found != initializers.end()) {
      places[slot] = found->second;
    }
  }
  return places;
}

}  // namespace onnx_external
