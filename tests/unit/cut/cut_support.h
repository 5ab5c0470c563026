// Cuts models in tests and reads the pieces.
#pragma once

#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <string>
#include <utility>
#include <vector>

#include "onnx_external/cut.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {

// Adds an entry to metadata_props, as newer exporters do. The protobuf classes may lack this field.
inline void add_metadata(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  constexpr int kNodeMetadata = 9;
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  onnx::NodeProto newer;
  newer.mutable_unknown_fields()->AddLengthDelimited(kNodeMetadata, entry.SerializeAsString());
  onnx::NodeProto read;
  ASSERT_TRUE(read.ParseFromString(newer.SerializeAsString()));
  node.MergeFrom(read);
}

// Marks the last node as made for the modules in `scopes`, such as "'layer1', 'layer1.conv'".
inline void in_modules(GraphBuilder& builder, const std::string& scopes) {
  onnx::GraphProto& graph = *builder.model().mutable_graph();
  add_metadata(*graph.mutable_node(graph.node_size() - 1), "pkg.torch.onnx.name_scopes",
               "['', " + scopes + ", 'op']");
}

inline Result<Piece> cut(const onnx::ModelProto& model, const CutOptions& options) {
  const auto loaded = Model::from_proto(model, "/folder");
  return loaded ? cut_model(*loaded, options) : fail(loaded.error());
}

inline Result<Piece> cut_module(const onnx::ModelProto& model, std::string module) {
  CutOptions options;
  options.module = std::move(module);
  return cut(model, options);
}

inline Result<Piece> cut_between(const onnx::ModelProto& model, std::vector<std::string> inputs,
                                 std::vector<std::string> outputs) {
  CutOptions options;
  options.inputs = std::move(inputs);
  options.outputs = std::move(outputs);
  return cut(model, options);
}

inline onnx::ModelProto model_of(const Result<Piece>& piece) {
  onnx::ModelProto model;
  EXPECT_THAT(piece, IsOk());
  EXPECT_TRUE(piece && model.ParseFromString(piece->model));
  return model;
}

template <typename List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& each : list) {
    names.push_back(each.name());
  }
  return names;
}

inline std::vector<std::string> nodes_of(const Result<Piece>& piece) {
  return names_of(model_of(piece).graph().node());
}

}  // namespace onnx_external
