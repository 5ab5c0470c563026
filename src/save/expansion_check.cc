#include "save/expansion_check.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/holes.h"
#include "base/try.h"
#include "checkpoint/storage/expansion_limit.h"
#include "onnx/model_source.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {
namespace {

const ExternalTensor& existing_of(const PlannedTensor& tensor, const SourceModels& models) {
  return models.of(tensor).external_tensors()[tensor.source_index];
}

}  // namespace

Status check_expansion(const SavePlan& plan, const SourceModels& models, std::uint64_t max_expand) {
  std::uint64_t copied = 0;
  std::map<std::pair<std::uint32_t, std::string_view>, const PlannedTensor*> tensors;
  for (const DataRange& range : plan.ranges) {
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source == TensorSource::kModelExternal) {
      tensors.emplace(
          std::pair(tensor.model_index, std::string_view(existing_of(tensor, models).location)),
          &tensor);
      copied = checked_add(copied, range.bytes).value_or(UINT64_MAX);
    }
  }
  if (copied <= kAlwaysExpandedBytes) {
    return {};
  }
  std::uint64_t stored = 0;
  std::set<std::string> counted;  // several models may have their data in one file
  for (const auto& [place, tensor] : tensors) {
    TRY_ASSIGN(const auto file, open_external(models.of(*tensor), existing_of(*tensor, models)));
    TRY_ASSIGN(auto stamp, file->stamp());
    stored += counted.insert(std::move(stamp)).second ? stored_bytes(*file) : 0;
  }
  return check_expanded("the tensors that the model brings along", copied, stored, max_expand);
}

}  // namespace onnx_external
