#include "save/model_data_check.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"
#include "tensor/missing_data.h"

namespace onnx_external {

Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                  const SourceModels& models) {
  struct Used {
    const PlannedTensor* tensor = nullptr;
    std::vector<StoredRange> ranges;
  };
  std::map<std::pair<std::uint32_t, std::string_view>, Used> files;
  for (const DataRange& range : plan.ranges) {
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source != TensorSource::kModelExternal) {
      continue;
    }
    const ExternalTensor& external = models.of(tensor).external_tensors()[tensor.source_index];
    Used& used = files[{tensor.model_index, external.location}];
    used.tensor = &tensor;
    used.ranges.push_back({external.name, external.dims, external.offset, external.length});
  }
  std::vector<std::string> notes;
  for (auto& [place, used] : files) {
    const Model& model = models.of(*used.tensor);
    const ExternalTensor& external = model.external_tensors()[used.tensor->source_index];
    TRY_ASSIGN(const auto file, open_external(model, external));
    TRY_ASSIGN(auto note, check_is_not_missing(*file, std::move(used.ranges)));
    if (!note.empty()) {
      notes.push_back(std::move(note));
    }
  }
  return notes;
}

}  // namespace onnx_external
