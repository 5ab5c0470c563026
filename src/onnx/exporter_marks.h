// Reads what exporters record in metadata_props about the origin of values and nodes.
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
  bool transposed = false;    // the value was folded from a transposed weight (kTransposedKey)
  bool without_data = false;  // no optimizer has seen the value's data (kWithoutDataKey)
};

// The metadata key by which our Python package records that only a Transpose was folded.
inline constexpr std::string_view kTransposedKey = "pkg.onnx_external.transposed";

// The metadata key by which our Python package records that a weight had no data when the graph was
// optimized, so that the optimizer cannot have merged it with a constant.
inline constexpr std::string_view kWithoutDataKey = "pkg.onnx_external.without_data";

// A cheap test for whether there may be any marks; false for most values.
[[nodiscard]] bool has_marks(const onnx::ValueInfoProto& info);
[[nodiscard]] ExporterMarks read_marks(const onnx::ValueInfoProto& info);

// Returns whether onnxscript's FuseBatchNorm rules made the node
// (pkg.onnxscript.rewriter.rule_name): its weight and bias then keep their names but have other
// values.
[[nodiscard]] bool has_fused_batch_norm(const onnx::NodeProto& node);

// Returns whether the torch operation from which the node was made reads a parameter or a buffer
// itself (pkg.torch.onnx.fx_node names its arguments: "%p_fc_weight", "%b_mask"). Nullopt if this
// was not recorded.
[[nodiscard]] std::optional<bool> reads_parameter(const onnx::NodeProto& node);

// Returns whether the node's torch operation reads a value of this name as a buffer or constant:
// "%b_mask", "%c_lifted_tensor_0". (A parameter is "%p_fc_weight".)
[[nodiscard]] bool reads_as_buffer(const onnx::NodeProto& node, std::string_view name);

// Returns whether torch's newer exporter made the node for this torch operation:
// "aten.prelu.default".
[[nodiscard]] bool is_made_for(const onnx::NodeProto& node, std::string_view operation);

// Returns whether torch's newer exporter made the node from a linear operation in one of torch's
// own modules. The product then has the width of the result, and the bias has one dimension.
[[nodiscard]] bool is_linear_of_torch(const onnx::NodeProto& node);

// Returns the module for which the node was made, under its name in the state dict:
// "layer1.0.conv1". "" means the whole model, or that nothing is recorded. The name is read from
// pkg.torch.onnx.name_scopes, or from the name that torch's older exporter gives the node:
// "/layer1/layer1.0/conv1/Conv".
[[nodiscard]] std::string module_of(const onnx::NodeProto& node);

// Returns the modules in whose calls the node was made, from the outermost to the innermost, each
// with its full name: "layer1", "layer1.0", "layer1.0.conv1". The model itself is left out; empty
// if nothing is recorded. The names are read from pkg.torch.onnx.name_scopes, from namespace, or
// from the name that the older exporter gives the node. At most kMaxModuleScopes names.
inline constexpr std::size_t kMaxModuleScopes = 100;
[[nodiscard]] std::vector<std::string> module_scopes(const onnx::NodeProto& node);

// Parses a list of names as Python writes it: "['a', 'b']". Returns an empty list for any other
// text.
[[nodiscard]] std::vector<std::string> parse_python_names(std::string_view text);

}  // namespace onnx_external
