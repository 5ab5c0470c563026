// Reads the metadata_props in which exporters record the origin of values and nodes.
//
// The linked protobuf classes may be older than metadata_props. In that case, the entries are read
// from the unknown fields of the message.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/model.h"

namespace onnx_external {

struct ExporterMarks {
  SlotOrigin origin = SlotOrigin::kUnstated;
  std::vector<std::string> folded_from;
  bool transposed = false;    // the value is a folded, transposed weight (kTransposedKey)
  bool without_data = false;  // the optimizer had no data for the value (kWithoutDataKey)
};

// The metadata key by which our Python package records that only a Transpose was folded.
inline constexpr std::string_view kTransposedKey = "pkg.onnx_external.transposed";

// The metadata key by which our Python package records that a weight had no data when the graph was
// optimized, so that the optimizer cannot have merged it with a constant.
inline constexpr std::string_view kWithoutDataKey = "pkg.onnx_external.without_data";

// Returns false if the value certainly has no marks, as is the case for most values. This is a
// cheap test.
[[nodiscard]] bool has_marks(const onnx::ValueInfoProto& info);
[[nodiscard]] ExporterMarks read_marks(const onnx::ValueInfoProto& info);

// Returns whether the node was created by onnxscript's FuseBatchNorm rules
// (pkg.onnxscript.rewriter.rule_name). The weight and bias of such a node have their old names but
// other values.
[[nodiscard]] bool has_fused_batch_norm(const onnx::NodeProto& node);

// Returns whether the torch operation that was exported as this node directly reads a parameter or
// a buffer. The arguments of the operation are recorded in pkg.torch.onnx.fx_node: "%p_fc_weight",
// "%b_mask". Returns nullopt if they are not recorded.
[[nodiscard]] std::optional<bool> reads_parameter(const onnx::NodeProto& node);

// Returns whether the node's torch operation reads a value of this name as a buffer ("%b_mask") or
// constant ("%c_lifted_tensor_0"), and not as a parameter ("%p_fc_weight").
[[nodiscard]] bool reads_as_buffer(const onnx::NodeProto& node, std::string_view name);

// Returns whether torch's newer exporter created the node for a torch operation, such as
// "aten.prelu.default".
[[nodiscard]] bool is_made_for(const onnx::NodeProto& node, std::string_view operation);

// Returns whether torch's newer exporter created the node for a linear operation in one of torch's
// own modules. In this case the product has the width of the result, and the bias has one
// dimension.
[[nodiscard]] bool is_linear_of_torch(const onnx::NodeProto& node);

// Returns the module for which the node was created, by its name in the state dict, such as
// "layer1.0.conv1". "" means the whole model, or that no module is recorded. The name is read from
// pkg.torch.onnx.name_scopes, or from the name that torch's older exporter gives the node:
// "/layer1/layer1.0/conv1/Conv".
[[nodiscard]] std::string module_of(const onnx::NodeProto& node);

// Returns the modules in whose calls the node was created, from the outermost to the innermost,
// each with its full name: "layer1", "layer1.0", "layer1.0.conv1". The model itself is left out.
// The list is empty if no module is recorded. The names are read from pkg.torch.onnx.name_scopes,
// from namespace, or from the name that the older exporter gives the node. Returns at most
// kMaxModuleScopes names.
inline constexpr std::size_t kMaxModuleScopes = 100;
[[nodiscard]] std::vector<std::string> module_scopes(const onnx::NodeProto& node);

// Parses a list of names as Python writes it: "['a', 'b']". Returns an empty list for any other
// text.
[[nodiscard]] std::vector<std::string> parse_python_names(std::string_view text);

}  // namespace onnx_external
