// Infers shapes for operators of ONNX's default domain (https://onnx.ai/onnx/operators/), both from
// inputs to outputs and from outputs to inputs. A rule is applied again when more shapes are known,
// and does nothing if its result is not certain.
#pragma once

#include "onnx/value_types.h"

namespace onnx_external {

// Operators that move or combine elements, whose output dimensions follow from those of their
// inputs: src/onnx/shape_rules.cc.
void same_shape(NodeTypes& node);  // the first input and the first output have the same shape
void broadcast_shapes(NodeTypes& node);
void add_shapes(NodeTypes& node);         // as broadcast_shapes, and for torch's linear layers
void arithmetic_shapes(NodeTypes& node);  // as broadcast_shapes, and for constant integers
void where_shapes(NodeTypes& node);
void slope_shapes(NodeTypes& node);  // PRelu
void expand_shapes(NodeTypes& node);
void transpose_shapes(NodeTypes& node);
void unsqueeze_shapes(NodeTypes& node);
void squeeze_shapes(NodeTypes& node);
void reshape_shapes(NodeTypes& node);
void gather_shapes(NodeTypes& node);

// Operators that split or join values: src/onnx/split_rules.cc.
void concat_shapes(NodeTypes& node);
void split_shapes(NodeTypes& node);
void slice_shapes(NodeTypes& node);

// Operators that have weights: src/onnx/weight_rules.cc.
void matmul_shapes(NodeTypes& node);
void gemm_shapes(NodeTypes& node);
void conv_shapes(NodeTypes& node);
void conv_transpose_shapes(NodeTypes& node);
void channel_shapes(NodeTypes& node);  // BatchNormalization, InstanceNormalization
void layer_norm_shapes(NodeTypes& node);
void recurrent_shapes(NodeTypes& node);  // LSTM, GRU, RNN

// Operators on constant integers: src/onnx/constant_rules.cc.
void constant_numbers(NodeTypes& node);
// Infers an output that has the integers of the first input in another shape.
void same_numbers(NodeTypes& node);
void calculated_numbers(NodeTypes& node);  // Add, Sub, Mul
void concat_numbers(NodeTypes& node);
void shape_numbers(NodeTypes& node);

}  // namespace onnx_external
