// Reads what exporters write into metadata_props about the origin of a value.
//
// The linked protobuf classes may be older than this field. It is then read from the fields that
// they do not know.
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
  bool transposed = false;    // what the value was folded from was transposed (kTransposedKey)
  bool without_data = false;  // no optimizer has seen its data (kWithoutDataKey)
};

// The metadata entry by which our Python package records that only a Transpose was folded.
inline constexpr std::string_view kTransposedKey = "pkg.onnx_external.transposed";

// The metadata entry by which our Python package records that a weight had no data when the graph
// was optimized, so that it cannot have been merged with a constant.
inline constexpr std::string_view kWithoutDataKey = "pkg.onnx_external.without_data";

// Cheap, and false for most values.
[[nodiscard]] bool has_marks(const onnx::ValueInfoProto& info);
[[nodiscard]] ExporterMarks read_marks(const onnx::ValueInfoProto& info);

// True when onnxscript's FuseBatchNorm rules made the node: its weight and bias then keep their
// names and have other values (pkg.onnxscript.rewriter.rule_name).
[[nodiscard]] bool has_fused_batch_norm(const onnx::NodeProto& node);

// Returns whether the torch operation that the node was made from reads a parameter or a buffer
// itself (pkg.torch.onnx.fx_node names its arguments: "%p_fc_weight", "%b_mask"). Nullopt if that
// was not recorded.
[[nodiscard]] std::optional<bool> reads_parameter(const onnx::NodeProto& node);

// True if the node's torch operation reads a value of this name as a buffer or constant: "%b_mask",
// "%c_lifted_tensor_0". A parameter is "%p_fc_weight".
[[nodiscard]] bool reads_as_buffer(const onnx::NodeProto& node, std::string_view name);

// True if torch's newer exporter made the node for this torch operation: "aten.prelu.default".
[[nodiscard]] bool is_made_for(const onnx::NodeProto& node, std::string_view operation);

// True for nodes that torch's newer exporter makes from a linear operation in one of torch's own
// modules: the product then has the width of the result, and the bias has one dimension.
[[nodiscard]] bool is_linear_of_torch(const onnx::NodeProto& node);

// The module that the node was made for, as the state dict spells it: "layer1.0.conv1". "" means
// the whole model, or that nothing is recorded. It is read from pkg.torch.onnx.name_scopes, or from
// the name that torch's older exporter gives the node: "/layer1/layer1.0/conv1/Conv".
[[nodiscard]] std::string module_of(const onnx::NodeProto& node);

// The modules that the node lies in, as they were called, from the outermost to the innermost, each
// with its whole name: "layer1", "layer1.0", "layer1.0.conv1". The model itself is left out; empty
// if nothing is recorded. Read from pkg.torch.onnx.name_scopes, namespace or the older exporter's
// name of the node. At most kMaxModuleScopes of them.
inline constexpr std::size_t kMaxModuleScopes = 100;
[[nodiscard]] std::vector<std::string> module_scopes(const onnx::NodeProto& node);

// The names in a list as Python writes it: "['a', 'b']". Empty for any other text.
[[nodiscard]] std::vector<std::string> parse_python_names(std::string_view text);

}  // namespace onnx_external
