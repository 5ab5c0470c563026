// Checks a save before anything is written. The options must be compatible (kInvalidArgument), no
// weight may be missing (kNotFound), the model's own data must not expand too much (kUnsupported)
// and must be downloaded completely, and the weights must not contradict each other (kMismatch).
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

// Fails with kInvalidArgument for an option that would have no effect, or that contradicts the
// layout or another option. Called for every kind of save.
[[nodiscard]] Status check_option_rules(const PlanOptions& plan, const WriteOptions& write,
                                        Casts casts);

// Returns the names that would have no value in the saved model. These are names that the mapping
// lists, slots that it does not fill, and names and tensors that are not slots
// (onnx/open_values.h).
[[nodiscard]] std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping);

// Fails with kNotFound if names_left_open() is not empty, unless the mapping was made with
// Partial::kAllow. `source` is advice on how the weights can get data; by default, the advice is to
// pass a checkpoint that has them.
[[nodiscard]] Status check_complete(const Model& model, const Mapping& mapping,
                                    std::string_view source = {});

// Fails with kUnsupported if the bytes to copy exceed a limit. There is a limit because many
// tensors of a small model may refer to one range, and data files may have holes. It is
// `max_expand` times the bytes that the files store, or kAlwaysExpandedBytes if that is more. Other
// errors are those of opening the files.
[[nodiscard]] Status check_expansion(const SavePlan& plan, const SourceModels& models,
                                     std::uint64_t max_expand);

// Fails with kMismatch if the tensors planned for the model contradict the operator of one of its
// nodes. Does nothing if the graph states the type and shape of each tensor.
[[nodiscard]] Status check_shapes(const Model& model, std::uint32_t model_index,
                                  std::span<const PlannedTensor> tensors);

// Performs this check for a model that has all its initializers.
[[nodiscard]] Status check_shapes(const Model& model);

// Searches the files of the models' external data for zeros that an interrupted download left, in
// all ranges that are copied or linked. Returns the notes of check_is_not_missing(). Errors are
// those of check_is_not_missing() and of opening the files.
[[nodiscard]] Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                                const SourceModels& models);

}  // namespace onnx_external
