#include "mapping/quantized_names.h"

#include <algorithm>
#include <array>

#include "base/dotted_names.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPackedInts = "GPTQ or AWQ";

struct ComponentRow {
  std::string_view component;  // of a key's name, between its dots
  std::string_view method;
  bool is_read = true;  // by src/checkpoint/quantized, if the settings of the folder are known
};

// The names that the libraries use in place of 'weight'.
constexpr std::array kComponents = {
    ComponentRow{"qweight", kPackedInts},
    ComponentRow{"qzeros", kPackedInts},
    ComponentRow{"weight_scale_inv", "fp8 in blocks"},
    ComponentRow{"weight_packed", "compressed-tensors"},
    ComponentRow{"weight_scale_2", "NVFP4 of ModelOpt"},
    ComponentRow{"weight_scale", "a method with weight_scale: fp8, compressed-tensors or ModelOpt"},
    ComponentRow{"absmax", "bitsandbytes"},
    ComponentRow{"quant_map", "bitsandbytes"},
    ComponentRow{"nested_absmax", "bitsandbytes"},
    ComponentRow{"quant_state", "bitsandbytes"},
    ComponentRow{"SCB", "bitsandbytes"},
    ComponentRow{"W_q", "HQQ"},
    ComponentRow{"weight_scales", "EETQ, in the order of a GPU kernel", false},
    ComponentRow{"_weight_qdata", "torchao"},
    ComponentRow{"weight_qdata", "torchao"},
    ComponentRow{"codebooks", "AQLM, in codebooks", false},
    ComponentRow{"centroids", "VPTQ, in codebooks", false},
    ComponentRow{"Qidxs", "QuIP#, in codebooks", false},
    ComponentRow{"dense_weights", "SpQR, with separate outliers", false},
    ComponentRow{"tables2", "HIGGS, in codebooks", false},
    ComponentRow{"trellis", "EXL3, in trellises", false},
    ComponentRow{"q_invperm", "EXL2, in the order of a GPU kernel", false},
    ComponentRow{"forward_hadamard_matrix", "FP-Quant, with rotations at run time", false},
    ComponentRow{"scaled_fp8", "fp8 with scales, as in ComfyUI"},
    ComponentRow{"comfy_quant", "a method of ComfyUI", false},
    ComponentRow{"_packed_params", "PyTorch's own quantization", false},
};

constexpr std::array kEnds = {
    ComponentRow{"weight._data", "quanto"},
    ComponentRow{"proj_blocks", "MXFP4"},
};

// Names of float8 scales that alone do not prove that a weight is quantized.
constexpr std::array kScaleEnds = {".scale"sv, ".scale_weight"sv};

constexpr std::array kOperators = {"QuantizeLinear"sv,
                                   "DequantizeLinear"sv,
                                   "DequantizeBFP"sv,
                                   "MatMulInteger"sv,
                                   "ConvInteger"sv,
                                   "MatMulIntegerToFloat"sv,
                                   "DynamicQuantizeMatMul"sv,
                                   "DynamicQuantizeLSTM"sv,
                                   "MatMulNBits"sv,
                                   "MatMulBnb4"sv,
                                   "MatMulFpQ4"sv,
                                   "GatherBlockQuantized"sv,
                                   "QGemm"sv,
                                   "QMoE"sv,
                                   "QAttention"sv,
                                   "QEmbedLayerNormalization"sv,
                                   "QOrderedMatMul"sv,
                                   "QLinearConv"sv,
                                   "QLinearMatMul"sv,
                                   "QLinearAdd"sv,
                                   "QLinearMul"sv};

const ComponentRow* row_of(std::string_view name) {
  for (const ComponentRow& row : kComponents) {
    if (contains_components(name, row.component)) {
      return &row;
    }
  }
  for (const ComponentRow& row : kEnds) {
    if (name.ends_with(row.component)) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<QuantizedKeys> quantized_keys(std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const ComponentRow* const row = row_of(name);
    if (row == nullptr) {
      continue;
    }
    const bool has_index = std::any_of(names.begin(), names.end(), [](std::string_view other) {
      return contains_components(other, "g_idx");
    });
    const bool is_gptq = row->method == kPackedInts && has_index;
    return QuantizedKeys{std::string(is_gptq ? "GPTQ"sv : row->method), std::string(name),
                         row->is_read};
  }
  return std::nullopt;
}

bool is_read_with_settings(std::string_view scale) {
  return std::any_of(kScaleEnds.begin(), kScaleEnds.end(),
                     [&](std::string_view end) { return scale.ends_with(end); });
}

bool reads_quantized(std::string_view op_type) {
  return std::find(kOperators.begin(), kOperators.end(), op_type) != kOperators.end();
}

}  // namespace onnx_external
