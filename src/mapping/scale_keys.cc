#include "mapping/scale_keys.h"

#include <algorithm>

#include "base/text.h"
#include "mapping/name_refinement.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

// Limits on the parts of one name that are looked up, and on those of all names together.
constexpr std::size_t kMostStarts = 16;
constexpr std::size_t kMaxNameLookUps = 4'000'000;

// Returns whether `count` numbers can scale `size` elements in blocks of equal size, of which the
// last may be smaller.
bool are_blocks(std::int64_t count, std::int64_t size) {
  if (count < 1 || count > size) {
    return false;
  }
  const std::int64_t block = (size + count - 1) / count;
  return (size + block - 1) / block == count;
}

bool scales(Shape scale, const Shape& weight) {
  const std::uint64_t count = element_count(scale).value_or(0);
  if (count == 1) {
    return true;
  }
  while (scale.size() > weight.size() && scale.back() == 1) {
    scale.pop_back();
  }
  if (scale.size() == 1) {  // of rows, of columns, or of blocks in their order
    const std::uint64_t elements = element_count(weight).value_or(0);
    return count > 0 && count < elements && elements % count == 0;
  }
  return scale.size() == weight.size() && scale != weight &&
         std::equal(scale.begin(), scale.end(), weight.begin(), are_blocks);
}

}  // namespace

ScaleKeys::ScaleKeys(const MappingTask& task, const std::vector<bool>& weights) : task_(task) {
  for (std::uint32_t key = 0; key < weights.size(); ++key) {
    const MappingKey& weight = task.keys.keys[key];
    if (!weights[key] || !is_float8(weight.dtype) || weight.shape.size() < 2) {
      continue;
    }
    first_ = weight_count_++ == 0 ? key : first_;
    const std::string_view name = task.key_names[key].name;
    add(refine(name), key);
    add(refine(module_of(name)), key);
    // Scales that are a module of their own may leave out the model's name.
    const std::size_t dot = name.find('.');
    add(dot == std::string_view::npos ? "" : refine(module_of(name.substr(dot + 1))), key);
  }
}

void ScaleKeys::add(const std::string& name, std::uint32_t weight) {
  if (!name.empty()) {
    weights_.emplace(name, weight);
  }
}

std::optional<std::uint32_t> ScaleKeys::named_in(std::string_view name, const Shape& shape) {
  const std::string refined = refine(name);
  std::vector<std::size_t> starts{0};
  for (std::size_t at = refined.find_first_of("_/");
       at != std::string::npos && starts.size() < kMostStarts;
       at = refined.find_first_of("_/", at + 1)) {
    starts.push_back(at + 1);
  }
  for (const std::size_t start : starts) {
    for (std::size_t end = refined.size(); end > start && end != std::string::npos;
         end = refined.find_last_of("_/", end - 1)) {
      if (++look_ups_ > kMaxNameLookUps) {
        return std::nullopt;
      }
      const auto found = weights_.find(std::string_view(refined).substr(start, end - start));
      if (found != weights_.end() && scales(shape, task_.keys.keys[found->second].shape)) {
        return found->second;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> ScaleKeys::weight_of(std::uint32_t key) {
  const MappingKey& scale = task_.keys.keys[key];
  const std::string_view name = task_.key_names[key].name;
  const std::string_view own = name.substr(std::min(name.rfind('.') + 1, name.size()));
  if (weight_count_ == 0 || is_float8(scale.dtype) || scale.dtype == DType::kBool ||
      ascii_lower(own).find("bias") != std::string::npos) {
    return std::nullopt;
  }
  const bool is_of_all = weight_count_ > 1 &&
                         element_count(scale.shape).value_or(0) == weight_count_ &&
                         ascii_lower(name).find("scale") != std::string::npos;
  return is_of_all ? std::optional(first_) : named_in(name, scale.shape);
}

std::vector<bool> used_as_floats(const MappingTask& task) {
  std::vector<bool> used(task.keys.keys.size());
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    const auto dtype = dtype_from_onnx(task.graph.slots[slot].elem_type);
    if (task.fills[slot] && !(dtype && is_float8(*dtype))) {
      used[task.fills[slot]->key] = true;
    }
  }
  return used;
}

}  // namespace onnx_external
