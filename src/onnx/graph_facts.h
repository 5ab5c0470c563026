// Describes a graph for the mapping of weights: its slots (the values that a checkpoint tensor can
// supply), and the use of slots by nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The ways in which a graph can refer to a weight (docs/mapping.md, "What is a slot").
enum class SlotKind : std::uint8_t {
  kGraphInput,      // a graph input without an initializer
  kUndefinedName,   // a name that nodes use and nothing defines
  kInitializer,     // an initializer of the graph, whose data can be replaced
  kIdentityOutput,  // output of an Identity node that reads a slot or initializer, as exporters
                    // write merged weights
};

// The role of a value in torch, as the exporter states it (torch 2.5 and later: the metadata_props
// pkg.torch.export.graph_signature.InputSpec.kind and .persistent of its value_info).
enum class SlotOrigin : std::uint8_t {
  kUnstated,
  kParameter,
  kBuffer,       // a persistent buffer, which is in the state dict
  kLocalBuffer,  // a non-persistent buffer, which is in no state dict
  kConstant,     // a constant tensor found by tracing
  kUserInput,    // an input that the caller supplies
};

// A shape in which dimensions that are symbolic or not stated are nullopt.
using SymbolicShape = std::vector<std::optional<std::int64_t>>;

// A value of a graph that a checkpoint tensor can supply. A plain value.
struct Slot {
  std::string name;
  SlotKind kind = SlotKind::kGraphInput;
  std::uint32_t graph = 0;             // 0 = main graph, else index into Model's list of subgraphs
  std::int32_t elem_type = 0;          // TensorProto.DataType; 0 = not stated
  std::optional<SymbolicShape> shape;  // nullopt = not stated
  // If no shape is stated, the shape to which the node that reads the value broadcasts it.
  std::optional<SymbolicShape> broadcast_limit;
  std::uint32_t input_index = 0;  // kGraphInput: position in graph.input
  bool has_data = false;          // kInitializer: it has inline or external data
  std::string merged_into;        // kIdentityOutput: the name that the Identity node reads
  SlotOrigin origin = SlotOrigin::kUnstated;
  // The original names of the values from which an optimizer computed this one, directly or
  // indirectly (pkg.onnxscript.optimizer.folded_from).
  std::vector<std::string> folded_from;
  // True if the value is the folded result of a single Transpose of a single value. Our Python
  // package records this.
  bool transposed = false;
  // kUndefinedName: true if the metadata of a torch operation that uses the value states that it is
  // a buffer or a constant.
  bool read_as_buffer = false;
  // True if the optimizer multiplied a BatchNorm into the value, but left the value's name
  // unchanged.
  bool batch_norm_fused = false;
  // True if a BatchNormalization reads the value both as a scale or bias and as a mean or variance,
  // because the exporter merged equal weights.
  bool scale_and_statistic = false;
  bool graph_output = false;  // true if the value is an output of the main graph
  // Number of node inputs (in any graph) and graph outputs that use the value.
  std::uint32_t consumer_count = 0;
  std::uint32_t matmul_second_count = 0;  // uses as the second input of a MatMul
  // The number of consumers whose torch operation reads a parameter, and the number of consumers
  // whose operation reads none. If both are above 0, the optimizer may have merged the value with
  // an equal constant.
  std::uint32_t parameter_uses = 0;
  std::uint32_t other_uses = 0;
  // True if our Python package has recorded that the optimizer had no data for the value, and so
  // cannot have merged it.
  bool never_merged = false;
  // is_gathered: a Gather reads the value as its data. is_multiplied: a MatMul, Gemm or Transpose
  // reads it. Both are true for a tied embedding.
  bool is_gathered = false;
  bool is_multiplied = false;
  // The first few modules whose nodes use the value, except the module in the value's own name, as
  // indices into GraphFacts::modules. If two modules share a parameter, torch lists it under both
  // names.
  std::vector<std::uint32_t> used_in;
  std::string consumer_op;  // op_type of the first node that uses the value; empty if there is none
  std::string consumer_name;  // name of that node
};

// A floating-point tensor in a Constant node.
struct ConstantTensor {
  std::string name;  // output of the node
  std::int32_t elem_type = 0;
  Shape shape;
};

// All facts about a graph on which the mapping depends. It is a plain value, so tests can construct
// it without a model.
struct GraphFacts {
  std::vector<Slot> slots;                // names are unique within one graph
  std::vector<std::string> graph_inputs;  // all inputs of the main graph, in order
  // All other names that any graph defines (inputs and outputs of nodes), in no particular order. A
  // new initializer must not have one of these names.
  std::vector<std::string> defined_names;
  // Sorted names of values that supply the scales of Resize or Upsample nodes; see
  // must_stay_inline().
  std::vector<std::string> inline_names;
  // The floating-point constants in all graphs that have two or more elements.
  std::vector<ConstantTensor> constants;
  // Modules with nodes in the graph, as torch's exporters record them: "layer1.0.conv1". Sorted.
  std::vector<std::string> modules;
  // Files other than external data to which nodes refer, such as contexts compiled by ONNX Runtime
  // (EPContext). The list is sorted. Names are relative to the model's folder, and may be unsafe
  // because they come from the model.
  std::vector<std::string> side_files;
  std::int64_t ir_version = 0;
};

}  // namespace onnx_external
