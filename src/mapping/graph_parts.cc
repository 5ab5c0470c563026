#include "mapping/graph_parts.h"

#include <vector>

#include "checkpoint/stored_parts.h"
#include "onnx_external/dtype.h"

namespace onnx_external {

void list_parts_for(const GraphFacts& graph, Checkpoint& checkpoint) {
  std::vector<TakenTensor> taken;
  taken.reserve(graph.slots.size());
  for (const Slot& slot : graph.slots) {
    taken.push_back({slot.name, dtype_from_onnx(slot.elem_type)});
  }
  list_stored_parts(checkpoint, taken);
}

}  // namespace onnx_external
