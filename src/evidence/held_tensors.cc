#include "evidence/held_tensors.h"

#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "onnx/inline_data.h"
#include "onnx/model_source.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kSeveral = 0xFFFFFFFF;

using PlacedName = std::pair<std::uint32_t, std::string_view>;  // graph, name

// Which slot an Identity's slot reads: of its own graph, or the only one of that name.
class SlotFinder {
 public:
  explicit SlotFinder(const GraphFacts& graph) : graph_(graph) {
    for (std::uint32_t i = 0; i < graph.slots.size(); ++i) {
      own_.emplace(PlacedName(graph.slots[i].graph, graph.slots[i].name), i);
      const auto [entry, fresh] = any_.emplace(graph.slots[i].name, i);
      if (!fresh) {
        entry.value() = kSeveral;
      }
    }
  }

  // The slot that `slot` has its data from.
  [[nodiscard]] std::optional<std::uint32_t> root(std::uint32_t slot) const {
    for (std::size_t steps = 0; steps <= graph_.slots.size(); ++steps) {
      const Slot& here = graph_.slots[slot];
      if (here.kind != SlotKind::kIdentityOutput) {
        return slot;
      }
      const auto own = own_.find(PlacedName(here.graph, here.merged_into));
      const auto any = any_.find(here.merged_into);
      if (own != own_.end()) {
        slot = own->second;
      } else if (any != any_.end() && any->second != kSeveral) {
        slot = any->second;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;  // a circle
  }

 private:
  const GraphFacts& graph_;
  std::map<PlacedName, std::uint32_t> own_;
  NameMap<std::uint32_t> any_;
};

Result<ByteStream> file_stream(const Model& model, const ExternalTensor& external) {
  auto file = open_external(model, external);
  if (!file) {
    return fail(std::move(file).error());
  }
  return ByteStream{external.length, [file = *std::move(file),
                                      at = external.offset](std::span<std::byte> out) mutable {
                      return file->read(std::exchange(at, at + out.size()), out);
                    }};
}

}  // namespace

std::vector<HeldTensor> held_tensors(const Model& model) {
  std::vector<HeldTensor> held;
  held.reserve(model.external_tensors().size() + model.inline_tensors().size());
  for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
    held.push_back({&model.external_tensors()[i], nullptr, i});
  }
  for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
    held.push_back({nullptr, &model.inline_tensors()[i], i});
  }
  return held;
}

Result<ByteStream> held_stream(const Model& model, const HeldTensor& tensor) {
  if (tensor.external != nullptr) {
    return file_stream(model, *tensor.external);
  }
  auto reader = InlineReader::open(model.inline_proto(tensor.index), model.cut_tensors());
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

std::vector<std::optional<std::uint32_t>> held_by_slots(const GraphFacts& graph,
                                                        const std::vector<HeldTensor>& held) {
  std::map<PlacedName, std::uint32_t> initializers;
  for (std::uint32_t i = 0; i < held.size(); ++i) {
    if (held[i].place() == TensorPlace::kInitializer) {
      initializers.emplace(PlacedName(held[i].graph(), held[i].name()), i);
    }
  }
  const SlotFinder finder(graph);
  std::vector<std::optional<std::uint32_t>> places(graph.slots.size());
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
