#include "save/given_bytes.h"

#include <map>
#include <string_view>

#include "base/checked_math.h"
#include "base/holes.h"
#include "base/try.h"
#include "checkpoint/storage/expansion_limit.h"
#include "onnx/model_source.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {

Status check_given_bytes(const SavePlan& plan, const Model& model, std::uint64_t max_expand) {
  std::uint64_t copied = 0;
  std::map<std::string_view, const ExternalTensor*> files;
  for (const PlannedPart& part : plan.parts) {
    const PlannedTensor& tensor = plan.tensors[part.source_tensor];
    if (tensor.source == TensorSource::kModelExternal) {
      const ExternalTensor& given = model.external_tensors()[tensor.source_index];
      files.emplace(given.location, &given);
      copied = checked_add(copied, part.bytes).value_or(UINT64_MAX);
    }
  }
  if (copied <= kAlwaysExpandedBytes) {
    return {};
  }
  std::uint64_t stored = 0;
  for (const auto& [location, given] : files) {
    TRY_ASSIGN(const auto file, open_external(model, *given));
    stored += stored_bytes(file->fd(), file->size());
  }
  return check_expanded("the tensors that the model brings along", copied, stored, max_expand);
}

}  // namespace onnx_external
