// Types and shapes of values, where nothing states them: graphs that were saved without their
// initializers.
#pragma once

#include <span>

#include "onnx/value_forms.h"

namespace onnx_external {

// Completes the forms by what the operators of ONNX's default domain ask of each other
// (https://onnx.ai/onnx/operators/), along all paths. Only what is certain is learned, and nothing
// that contradicts what is stated. Requires: nodes in topological order for a full result; the
// values of the nodes are indices into `forms`. Linear in the nodes: they are gone through a fixed
// number of times.
void infer_forms(std::span<const NodeValues> nodes, std::span<ValueForm> forms);

// Nothing when the shape has more dimensions than any checkpoint's.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
