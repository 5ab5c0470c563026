// Lists the modules of a model, as recorded in its nodes, with their numbers of nodes and weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A module with everything in it. An initializer that several nodes read counts once in each module
// that has one of them, so the sum over modules may be more than the model has.
struct ModuleFacts {
  std::string name;  // "model.layers.3"; of a container also "model.layers"
  std::uint64_t nodes = 0;
  // Elements of the initializers that its nodes read, without shapes, indexes and scalars that have
  // no name in torch ("val_12").
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of all initializers that its nodes read
};

struct ModuleList {
  // Sorted by name; numbers in names are compared as numbers, and a module comes before those in
  // it.
  std::vector<ModuleFacts> modules;
  ModuleFacts all;               // of the main graph
  std::uint64_t unassigned = 0;  // nodes of no module
};

// A module has the same nodes as a piece cut by CutOptions::module, except nodes without a module.
// Subgraphs count with the node that owns them. Errors as for cut_model().
[[nodiscard]] Result<ModuleList> count_modules(const Model& model);

}  // namespace onnx_external
