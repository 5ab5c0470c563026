// What exporters write into metadata_props about where a value comes from.
//
// The field is younger than the protobuf classes that may be linked: it is then read from the
// fields that these do not know.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/model.h"

namespace onnx_external {

struct ExporterMarks {
  SlotOrigin origin = SlotOrigin::kUnstated;
  std::vector<std::string> folded_from;
};

// False for most values, at the cost of one look.
[[nodiscard]] bool has_marks(const onnx::ValueInfoProto& info);
[[nodiscard]] ExporterMarks read_marks(const onnx::ValueInfoProto& info);

// True when onnxscript's FuseBatchNorm rules made the node: its weight and bias then keep their
// names and have other values (pkg.onnxscript.rewriter.rule_name).
[[nodiscard]] bool has_fused_batch_norm(const onnx::NodeProto& node);

// Whether torch's operation behind the node reads a parameter or a buffer itself
// (pkg.torch.onnx.fx_node names its arguments: "%p_fc_weight", "%b_mask"); nothing when it is not
// recorded.
[[nodiscard]] std::optional<bool> reads_parameter(const onnx::NodeProto& node);

// True when torch's newer exporter made the node for this operation of torch: "aten.prelu.default".
[[nodiscard]] bool is_made_for(const onnx::NodeProto& node, std::string_view operation);

// True for what torch's newer exporter makes of its linear operation in one of torch's own modules:
// the product then has the width of the result, and the bias one dimension.
[[nodiscard]] bool is_linear_of_torch(const onnx::NodeProto& node);

// The module that the node was made for, as the state dict spells it: "layer1.0.conv1", "" for the
// whole model or when nothing tells. From pkg.torch.onnx.name_scopes, or from the name that torch's
// older exporter gives: "/layer1/layer1.0/conv1/Conv".
[[nodiscard]] std::string module_of(const onnx::NodeProto& node);

// The names in a list as Python writes it: "['a', 'b']". Empty for any other text.
[[nodiscard]] std::vector<std::string> parse_python_names(std::string_view text);

}  // namespace onnx_external
