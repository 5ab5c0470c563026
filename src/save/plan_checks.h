// Checks a save before anything is written: that its options are compatible (kInvalidArgument),
// that no weight is missing (kNotFound), that the model's own data does not expand too much
// (kUnsupported) and was downloaded completely, and that the weights do not contradict each other
// (kMismatch).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// kInvalidArgument for an option that would have no effect, or that contradicts the layout or
// another option. Called for every type of save.
[[nodiscard]] Status check_option_rules(const PlanOptions& plan, const WriteOptions& write,
                                        Casts casts);

// Returns the names that would have no value in the saved model: those that the mapping lists,
// slots that it does not fill, and names and tensors that are not slots (onnx/open_values.h).
[[nodiscard]] std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping);

// kNotFound with the result of names_left_open(), unless the mapping was made with Partial::kAllow.
// `source`: how the weights can get data, if the advice is not to pass a checkpoint that has them.
[[nodiscard]] Status check_complete(const Model& model, const Mapping& mapping,
                                    std::string_view source = {});

// Limits the bytes to copy, because many tensors of a small model may refer to one range, and data
// files may have holes. The limit is `max_expand` times the bytes that the files store, or
// kAlwaysExpandedBytes if that is more. kUnsupported beyond the limit; errors of opening the files.
[[nodiscard]] Status check_expansion(const SavePlan& plan, const SourceModels& models,
                                     std::uint64_t max_expand);

// kMismatch if the tensors planned for the model contradict the operator of one of its nodes. Does
// nothing if the graph states the type and shape of each of them.
[[nodiscard]] Status check_shapes(const Model& model, std::uint32_t model_index,
                                  std::span<const PlannedTensor> tensors);

// Does the same for a model that already has all its initializers.
[[nodiscard]] Status check_shapes(const Model& model);

// Looks for zeros that a broken download left in the files of models' external data, in all ranges
// that are copied or linked. Returns the notes of check_is_not_missing(). Errors of opening the
// files.
[[nodiscard]] Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                                const SourceModels& models);

}  // namespace onnx_external
