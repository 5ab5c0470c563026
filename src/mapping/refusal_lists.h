// Builds the lists in the error of a failed mapping. Each list contains the slots (values of a
// graph) or keys (tensors of a checkpoint) with one kind of fault. The remedies for this fault are
// added together with the list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mapping/advice.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Creates an item with the key's name in the checkpoint and, if the options rename the key, its new
// name.
[[nodiscard]] ErrorItem item_of(const MappingTask& task, std::uint32_t key, std::string note = "");

// Problems with slots that may explain why keys are unused.
struct SlotTroubles {
  std::vector<std::string_view> missing;  // names
  bool computed = false;  // values were computed from weights, or two weights were merged
};
void add_troubles(const MappingTask& task, const Mapping& mapping, bool any_merged,
                  SlotTroubles& troubles);

// Returns the filled slots that several nodes use and that have the type and shape of a left-over
// key. The exporter may have merged two weights into such a slot that were equal before training
// and now differ.
[[nodiscard]] std::vector<ErrorItem> merged_slots(const MappingTask& task, const Mapping& mapping);

// Returns whether an open slot is a constant or a buffer that no state dict has, and whose value
// was left out when the graph was saved.
[[nodiscard]] bool is_left_out(const Slot& slot);

// Each of these functions adds one list to the refusal, or nothing if there is nothing to list.
void list_missing(const MappingTask& task, const Mapping& mapping, Refusal& refusal);
void list_held(const MappingTask& task, const Mapping& mapping, Refusal& refusal);
void list_unused(const MappingTask& task, const Mapping& mapping, const SlotTroubles& troubles,
                 Refusal& refusal);
void list_adapters(const MappingTask& task, const Mapping& mapping, Refusal& refusal);
void list_inputs(const MappingTask& task, const Mapping& mapping, Refusal& refusal);
void list_merged_constants(const MappingTask& task, Refusal& refusal);
void list_merged(std::vector<ErrorItem> items, Refusal& refusal);  // items of merged_slots()

}  // namespace onnx_external
