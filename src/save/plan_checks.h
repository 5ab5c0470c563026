// Checks a save before anything is written: that its options go together (kInvalidArgument), that
// no weight is missing (kNotFound), that the model's own data does not grow too much (kUnsupported)
// and was downloaded whole, and that the weights do not contradict each other (kMismatch).
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

// kInvalidArgument for an option that would have no effect, or would contradict the layout or
// another option. Every kind of save calls it.
[[nodiscard]] Status check_option_rules(const PlanOptions& plan, const WriteOptions& write,
                                        Casts casts);

// Returns the names that would have no value in the saved model: those that the mapping lists,
// slots that it does not fill, and names and tensors that are not slots (onnx/open_values.h).
[[nodiscard]] std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping);

// kNotFound with the list of names_left_open(), unless the mapping was made with Partial::kAllow.
// `source`: the advice on how weights get data, if it is not to give a checkpoint that has them.
[[nodiscard]] Status check_complete(const Model& model, const Mapping& mapping,
                                    std::string_view source = {});

// Many tensors of a small model may refer to one range, and data files may have holes. So the bytes
// to copy may be at most `max_expand` times the bytes that the files store, or
// kAlwaysExpandedBytes, whichever is more. kUnsupported beyond that; errors of opening the files.
[[nodiscard]] Status check_expansion(const SavePlan& plan, const SourceModels& models,
                                     std::uint64_t max_expand);

// kMismatch if the tensors planned for the model make a node of it impossible. Does nothing if the
// graph knew the type and shape of each of them.
[[nodiscard]] Status check_shapes(const Model& model, std::uint32_t model_index,
                                  std::span<const PlannedTensor> tensors);

// The same of a model whose initializers are all there.
[[nodiscard]] Status check_shapes(const Model& model);

// Looks for zeros that a broken download left in the files of all ranges that are copied or linked
// from models' external data. Returns the notes of check_is_not_missing(). Errors of opening the
// files.
[[nodiscard]] Result<std::vector<std::string>> check_model_data(const SavePlan& plan,
                                                                const SourceModels& models);

}  // namespace onnx_external
