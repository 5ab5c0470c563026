#include "save/given_bytes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/holes.h"
#include "base/remedy.h"
#include "base/size_text.h"
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
    const auto file = open_external(model, *given);
    if (!file) {
      return fail(file.error());
    }
    stored += std::min((*file)->size(), stored_bytes((*file)->fd(), (*file)->size()));
  }
  if (copied / std::max<std::uint64_t>(max_expand, 1) <= stored) {
    return {};
  }
  return fail_with(ErrorCode::kUnsupported,
                   "the tensors that the model brings along have " + size_text(copied) +
                       ", in files that store " + size_text(stored) + "; at most " +
                       std::to_string(max_expand) + " times is allowed",
                   {{"max-expand", "N", "if they are trusted to grow N times"}});
}

}  // namespace onnx_external
