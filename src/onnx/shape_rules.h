// What operators of ONNX's default domain tell about the shapes of their inputs and outputs
// (https://onnx.ai/onnx/operators/), in both directions. A rule is applied again when more is
// known, and does nothing if it is not certain.
#pragma once

#include "onnx/value_forms.h"

namespace onnx_external {

// Operators whose outputs have the dimensions of their inputs: src/onnx/shape_rules.cc.
void same_shape(NodeForms& node);  // the first input and the first output
void broadcast_shapes(NodeForms& node);
void add_shapes(NodeForms& node);         // broadcast_shapes, and what follows from torch's linear
void arithmetic_shapes(NodeForms& node);  // broadcast_shapes, and constant integers
void where_shapes(NodeForms& node);
void slope_shapes(NodeForms& node);  // PRelu
void expand_shapes(NodeForms& node);
void transpose_shapes(NodeForms& node);
void unsqueeze_shapes(NodeForms& node);
void squeeze_shapes(NodeForms& node);
void reshape_shapes(NodeForms& node);
void gather_shapes(NodeForms& node);

// Operators that split and join values: src/onnx/piece_rules.cc.
void concat_shapes(NodeForms& node);
void split_shapes(NodeForms& node);
void slice_shapes(NodeForms& node);

// Operators that have weights: src/onnx/weight_rules.cc.
void matmul_shapes(NodeForms& node);
void gemm_shapes(NodeForms& node);
void conv_shapes(NodeForms& node);
void conv_transpose_shapes(NodeForms& node);
void channel_shapes(NodeForms& node);  // BatchNormalization, InstanceNormalization
void layer_norm_shapes(NodeForms& node);
void recurrent_shapes(NodeForms& node);  // LSTM, GRU, RNN

// Operators on constant integers: src/onnx/number_rules.cc.
void constant_numbers(NodeForms& node);
void same_numbers(NodeForms& node);  // the output has those of the first input, in another shape
void calculated_numbers(NodeForms& node);  // Add, Sub, Mul
void concat_numbers(NodeForms& node);
void shape_numbers(NodeForms& node);

}  // namespace onnx_external
