// Includes the whole library. oe::save() turns a graph and a checkpoint into a model with external
// data. If it succeeds, the model is complete and verified. If it fails, the output folder is
// unchanged:
//
//   namespace oe = onnx_external;
//   const auto report =
//       oe::save({.graph = "graph.onnx", .checkpoint = {"checkpoint.pt"}, .folder = "out"});
//   if (!report) {
//     std::cerr << report.error() << '\n';
//   }
//
// save_external.h declares save() and functions for each step of a save. writer.h declares a writer
// for exporters that produce their tensors one by one.
#pragma once

#include "onnx_external/checkpoint.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/cut.h"
#include "onnx_external/derived.h"
#include "onnx_external/dtype.h"
#include "onnx_external/error_kinds.h"
#include "onnx_external/evidence.h"
#include "onnx_external/learn.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/quantize.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/team.h"
#include "onnx_external/tensor.h"
#include "onnx_external/test_data.h"
#include "onnx_external/verify.h"
#include "onnx_external/version.h"
#include "onnx_external/writer.h"
