// Lists the torch modules of a model, as the exporter recorded them in its nodes, with their
// numbers of nodes and parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A module, including the modules inside it. An initializer that several nodes read is counted once
// in each module that has one of these nodes, so the sum over all modules may exceed the total of
// the model.
struct ModuleFacts {
  std::string name;  // "model.layers.3"; for a container, "model.layers"
  std::uint64_t nodes = 0;
  // The number of elements in the initializers that the module's nodes read, without shapes,
  // indices and scalars that have no name in torch ("val_12").
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // size of all initializers that the module's nodes read
};

struct ModuleList {
  // The modules, sorted by name. Numbers in names are compared as numbers, and a module comes
  // before the modules inside it.
  std::vector<ModuleFacts> modules;
  ModuleFacts all;               // the whole main graph
  std::uint64_t unassigned = 0;  // number of nodes without a module
};

// Counts the nodes and parameters of each module. A module has the nodes that
// CutOptions::module would cut out, except for nodes without a module. Subgraphs count as part of
// the node that owns them. Errors as for cut_model().
[[nodiscard]] Result<ModuleList> count_modules(const Model& model);

}  // namespace onnx_external
