#include "onnx_external/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "save/layout.h"
#include "save/output_names.h"

namespace onnx_external {
namespace {

// Tensors with equal keys have the same bytes, so one part serves them all. Plain ranges have keys
// of their own kind, which cost no text.
std::string bytes_key(const Checkpoint& checkpoint, std::size_t index) {
  const TensorView& view = checkpoint.tensors()[index];
  return fmt::format("view {} {} {} {} {} {}{}", view.storage, view.storage_offset,
                     torch_name(view.dtype), fmt::join(view.shape, "x"),
                     fmt::join(view.strides, "x"), view.conj, view.neg);
}

std::string bytes_key(const ExternalTensor& tensor) {
  return fmt::format("model {} {} {}", tensor.offset, tensor.length, tensor.location);
}

struct RangeHash {
  std::size_t operator()(const FileRange& range) const {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // spreads neighbouring offsets
    return ((range.offset ^ (std::uint64_t{range.file} << 48)) * kOdd) ^ range.length;
  }
};

bool stays_inline(const Model& model, const PlannedTensor& tensor) {
  if (tensor.nbytes == 0) {
    return true;
  }
  const bool small = tensor.dims.size() <= 1 && tensor.nbytes <= kMaxInlineIntegerBytes;
  return small && (!onnx_is_floating(tensor.data_type) || must_stay_inline(model, tensor.name));
}

// Builds a plan tensor by tensor; the parts are laid out last, when all are known.
class Planner {
 public:
  Planner(const Model& model, const Checkpoint& checkpoint, Dedup dedup, SavePlan& plan)
      : model_(model), checkpoint_(checkpoint), dedup_(dedup), plan_(plan) {}

  Status add_pair(const MappedPair& pair) {
    const TensorView& view = checkpoint_.tensors()[pair.key];
    PlannedTensor tensor;
    tensor.slot = pair.slot;
    tensor.source_index = pair.key;
    tensor.key = view.name;
    tensor.rule = pair.rule;
    tensor.data_type = onnx_data_type(view.dtype);
    tensor.nbytes = checkpoint_.nbytes(pair.key);
    auto dims = onnx_shape(view.dtype, view.shape);
    if (tensor.data_type == 0 || !dims) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("tensor {}: ONNX has no type for {} of shape {}", quote(view.name),
                              torch_name(view.dtype), shape_text(view.shape)));
    }
    tensor.dims = *std::move(dims);
    if (pair.slot == Attachment::kNoSlot) {
      tensor.name = view.name;
    } else {
      const Slot& slot = model_.facts().slots[pair.slot];
      tensor.name = slot.name;
      if (!model_.external_tensors().empty()) {
        replaced_.emplace(slot.graph, slot.name);
      }
    }
    if (stays_inline(model_, tensor)) {
      plan_.tensors.push_back(std::move(tensor));
      return {};
    }
    const auto range = checkpoint_.plain_range(pair.key);
    if (dedup_ == Dedup::kOff) {
      add_to_part(std::move(tensor), next_part());
    } else if (range) {
      add_to_part(std::move(tensor), part_of_range_.emplace(*range, next_part()).first->second);
    } else {
      std::string key = bytes_key(checkpoint_, pair.key);
      add_to_part(std::move(tensor),
                  part_of_bytes_.emplace(std::move(key), next_part()).first->second);
    }
    return {};
  }

  // External data of the given model goes along, unless a pair replaces it.
  void add_external(std::size_t index) {
    const ExternalTensor& external = model_.external_tensors()[index];
    if (replaced_.contains({external.graph, external.name})) {
      return;
    }
    PlannedTensor tensor;
    tensor.name = external.name;
    tensor.source = TensorSource::kModelExternal;
    tensor.source_index = index;
    tensor.data_type = external.data_type;
    tensor.dims = external.dims;
    tensor.nbytes = external.length;
    const std::uint32_t part =
        dedup_ == Dedup::kOff
            ? next_part()
            : part_of_bytes_.emplace(bytes_key(external), next_part()).first->second;
    add_to_part(std::move(tensor), part);
  }

 private:
  std::uint32_t next_part() const { return static_cast<std::uint32_t>(plan_.parts.size()); }

  // `part`: one of the plan's parts, or the next one.
  void add_to_part(PlannedTensor tensor, std::uint32_t part) {
    tensor.part = part;
    if (part == next_part()) {
      plan_.parts.push_back({.bytes = tensor.nbytes, .source_tensor = plan_.tensors.size()});
    }
    plan_.tensors.push_back(std::move(tensor));
  }

  const Model& model_;
  const Checkpoint& checkpoint_;
  Dedup dedup_;
  SavePlan& plan_;
  std::unordered_map<FileRange, std::uint32_t, RangeHash> part_of_range_;
  std::unordered_map<std::string, std::uint32_t> part_of_bytes_;
  std::set<std::pair<std::uint32_t, std::string>> replaced_;  // (graph, name)
};

}  // namespace

Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const PlanOptions& options) {
  if (Status names = check_output_names(options.model_name, options.data_dir); !names) {
    return fail(std::move(names).error());
  }
  SavePlan plan;
  plan.model_name = options.model_name;
  plan.data_dir = options.data_dir;
  plan.tensors.reserve(mapping.pairs.size());
  plan.parts.reserve(mapping.pairs.size());
  Planner planner(model, checkpoint, options.dedup, plan);
  for (const MappedPair& pair : mapping.pairs) {
    if (Status status = planner.add_pair(pair); !status) {
      return fail(std::move(status).error());
    }
  }
  for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
    planner.add_external(i);
  }
  if (Status placed = lay_out(plan, options); !placed) {
    return fail(std::move(placed).error());
  }
  return plan;
}

}  // namespace onnx_external
