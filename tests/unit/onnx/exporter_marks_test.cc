#include "onnx/exporter_marks.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "onnx/graph_facts.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char* kPersistent = "pkg.torch.export.graph_signature.InputSpec.persistent";

// Adds an entry of metadata_props as newer exporters write it: a field that these classes may lack.
template <typename Message>
void add_entry(Message& message, int field, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  Message newer;
  newer.mutable_unknown_fields()->AddLengthDelimited(field, entry.SerializeAsString());
  Message read;  // where the classes know the field, it comes to stand there
  ASSERT_TRUE(read.ParseFromString(newer.SerializeAsString()));
  message.MergeFrom(read);
}

onnx::ValueInfoProto info_of(const std::string& kind, const std::string& persistent = "None") {
  onnx::ValueInfoProto info;
  add_entry(info, 4, kKind, kind);
  add_entry(info, 4, kPersistent, persistent);
  return info;
}

TEST(ExporterMarks, StateTheKindOfAValue) {
  EXPECT_FALSE(has_marks(onnx::ValueInfoProto()));
  EXPECT_TRUE(has_marks(info_of("PARAMETER")));
  EXPECT_EQ(read_marks(info_of("PARAMETER")).origin, SlotOrigin::kParameter);
  EXPECT_EQ(read_marks(info_of("BUFFER", "True")).origin, SlotOrigin::kBuffer);
  EXPECT_EQ(read_marks(info_of("BUFFER", "False")).origin, SlotOrigin::kLocalBuffer);
  EXPECT_EQ(read_marks(info_of("CONSTANT_TENSOR")).origin, SlotOrigin::kConstant);
  EXPECT_EQ(read_marks(info_of("USER_INPUT")).origin, SlotOrigin::kUserInput);
  EXPECT_EQ(read_marks(info_of("TOKEN")).origin, SlotOrigin::kUnstated);
}

TEST(ExporterMarks, StateTheSourcesOfAFoldedValue) {
  onnx::ValueInfoProto info;
  add_entry(info, 4, "pkg.onnxscript.optimizer.folded_from", "['act.weight', 'val_18']");
  EXPECT_THAT(read_marks(info).folded_from, ElementsAre("act.weight", "val_18"));
}

TEST(ExporterMarks, StateThatAValueWasTransposed) {
  onnx::ValueInfoProto info;
  add_entry(info, 4, "pkg.onnxscript.optimizer.folded_from", "['act.weight']");
  EXPECT_FALSE(read_marks(info).transposed);
  add_entry(info, 4, "pkg.onnx_external.transposed", "True");
  EXPECT_TRUE(read_marks(info).transposed);
}

TEST(ExporterMarks, StateThatAnOptimizerHadNoDataForAWeight) {
  onnx::ValueInfoProto info = info_of("PARAMETER");
  EXPECT_FALSE(read_marks(info).without_data);
  add_entry(info, 4, "pkg.onnx_external.without_data", "True");
  EXPECT_TRUE(read_marks(info).without_data);
}

TEST(ExporterMarks, StateWhichNamesOfATraceAreBuffersAndConstants) {
  onnx::NodeProto node;
  EXPECT_FALSE(reads_as_buffer(node, "embeddings.Ids"));
  add_entry(node, 9, "pkg.torch.onnx.fx_node",
            "%slice_1 : [num_users=2] = call_function[target=torch.ops.aten.slice.Tensor](args = "
            "(%b_embeddings_ids, %c_lifted_tensor_0, %p_fc_weight, %b_mask_1, 0), kwargs = {})");
  EXPECT_TRUE(reads_as_buffer(node, "embeddings.Ids"));
  EXPECT_TRUE(reads_as_buffer(node, "lifted_tensor_0"));
  EXPECT_FALSE(reads_as_buffer(node, "fc.weight"));
  EXPECT_FALSE(reads_as_buffer(node, "mask"));
  EXPECT_FALSE(reads_as_buffer(node, "ids"));
}

TEST(ExporterMarks, ReadListsOfNamesAsPythonWritesThem) {
  EXPECT_THAT(parse_python_names("[]"), IsEmpty());
  EXPECT_THAT(parse_python_names(R"(['', "it's", 'a\'b'])"), ElementsAre("", "it's", "a'b"));
  for (const char* text : {"", "'a'", "['a'", "['a, 'b']x", "[a]", "['a", "['a']']"}) {
    EXPECT_THAT(parse_python_names(text), IsEmpty()) << text;
  }
}

TEST(ExporterMarks, IdentifyAFusedBatchNorm) {
  onnx::NodeProto node;
  EXPECT_FALSE(has_fused_batch_norm(node));
  add_entry(node, 9, "pkg.onnxscript.rewriter.rule_name", "FusePadIntoConv");
  EXPECT_FALSE(has_fused_batch_norm(node));
  add_entry(node, 9, "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoConv");
  EXPECT_TRUE(has_fused_batch_norm(node));
  onnx::NodeProto several;
  add_entry(several, 9, "pkg.onnxscript.rewriter.rule_name",
            "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv, RemoveOptionalBiasFromConv");
  EXPECT_TRUE(has_fused_batch_norm(several));
}

TEST(ExporterMarks, StateAllModulesAroundANode) {
  onnx::NodeProto node;
  EXPECT_THAT(module_scopes(node), IsEmpty());
  node.set_name("/layer1/layer1.0/conv1/Conv");
  EXPECT_THAT(module_scopes(node), ElementsAre("layer1", "layer1.0", "layer1.0.conv1"));
  onnx::NodeProto newer;
  add_entry(newer, 9, "namespace",
            ": __main__.M/layers.0: Inner/layers.0.act: GELU/gelu: aten.gelu");
  EXPECT_THAT(module_scopes(newer), ElementsAre("layers.0", "layers.0.act"));
  add_entry(newer, 9, "pkg.torch.onnx.name_scopes", "['', 'layers.1', 'gelu']");
  EXPECT_THAT(module_scopes(newer), ElementsAre("layers.1"));
}

TEST(ExporterMarks, StateNoModuleIfTorchHadNone) {
  onnx::NodeProto node;
  add_entry(node, 9, "pkg.torch.onnx.name_scopes",
            "['', '_empty_nn_module_stack_from_metadata_hook', 'add']");
  EXPECT_THAT(module_scopes(node), IsEmpty());
  EXPECT_EQ(module_of(node), "");
}

TEST(ExporterMarks, StateTheModuleOfANode) {
  onnx::NodeProto node;
  EXPECT_EQ(module_of(node), "");
  node.set_name("/layer1/layer1.0/conv1/Conv");
  EXPECT_EQ(module_of(node), "layer1.0.conv1");
  node.set_name("/Transpose");
  EXPECT_EQ(module_of(node), "");
  node.set_name("node_linear");
  add_entry(node, 9, "pkg.torch.onnx.name_scopes", "['', 'h', 'h.0', 'h.0.fc', 'linear']");
  EXPECT_EQ(module_of(node), "h.0.fc");
}

TEST(ExporterMarks, StateWhetherAnOperationReadsAParameter) {
  onnx::NodeProto node;
  EXPECT_EQ(reads_parameter(node), std::nullopt);
  onnx::NodeProto constant;
  add_entry(constant, 9, "pkg.torch.onnx.fx_node", "%mul = mul(args = (%x, 2.0), kwargs = {})");
  EXPECT_EQ(reads_parameter(constant), false);
  add_entry(node, 9, "pkg.torch.onnx.fx_node", "%mul = mul(args = (%x, %p_t), kwargs = {})");
  EXPECT_EQ(reads_parameter(node), true);
}

TEST(ExporterMarks, AppearInTheFactsOfTheGraph) {
  GraphBuilder b;
  b.initializer("w", onnx::TensorProto::FLOAT, {2, 2}, std::string(16, '\1'));
  b.node("MatMul", {"x", "w"}, {"y"}).output("y", onnx::TensorProto::FLOAT, {2, 2});
  onnx::ModelProto proto = b.model();
  onnx::ValueInfoProto info = info_of("PARAMETER");
  info.set_name("w");
  *proto.mutable_graph()->add_value_info() = info;
  onnx::NodeProto& node = *proto.mutable_graph()->mutable_node(0);
  node.set_name("/fc/MatMul");
  add_entry(node, 9, "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoGemm");
  const auto model = Model::from_proto(proto, ".");
  ASSERT_THAT(model, IsOk());
  const GraphFacts& facts = model->facts();
  ASSERT_FALSE(facts.slots.empty());
  EXPECT_EQ(facts.slots[0].origin, SlotOrigin::kParameter);
  EXPECT_TRUE(facts.slots[0].batch_norm_fused);
  EXPECT_EQ(facts.slots[0].matmul_second_count, 1U);
  EXPECT_THAT(facts.modules, ElementsAre("fc"));
}

TEST(ExporterMarks, IdentifyALinearLayerOfTorch) {
  const std::string linear = "%linear = call_function[target=torch.ops.aten.linear.default](args)";
  onnx::NodeProto node;
  EXPECT_FALSE(is_linear_of_torch(node));
  add_entry(node, 9, "pkg.torch.onnx.fx_node", linear);
  EXPECT_FALSE(is_linear_of_torch(node));
  add_entry(node, 9, "pkg.torch.onnx.class_hierarchy",
            "['Net', 'torch.nn.modules.linear.Linear', 'aten.linear.default']");
  EXPECT_TRUE(is_linear_of_torch(node));
  onnx::NodeProto own;
  add_entry(own, 9, "pkg.torch.onnx.fx_node", linear);
  add_entry(own, 9, "pkg.torch.onnx.class_hierarchy",
            "['torch.nn.modules.container.Sequential', 'mine.Linear', 'aten.linear.default']");
  EXPECT_FALSE(is_linear_of_torch(own));
}

TEST(ExporterMarks, StateWhichOtherModulesUseAWeight) {
  GraphBuilder b;
  b.node("MatMul", {"x", "norm.fc.weight"}, {"y"});
  b.node("MatMul", {"y", "norm.fc.weight"}, {"z"});
  onnx::ModelProto& proto = b.model();
  int count = 0;
  for (const char* scope : {"['', 'norm', 'norm.fc', 'm']", "['', 'body', 'body.fc', 'm']"}) {
    add_entry(*proto.mutable_graph()->mutable_node(count++), 9, "pkg.torch.onnx.name_scopes",
              scope);
  }
  const auto model = Model::from_proto(proto, ".");
  ASSERT_THAT(model, IsOk());
  const GraphFacts& facts = model->facts();
  ASSERT_EQ(facts.slots.size(), 2U);
  ASSERT_THAT(facts.modules, ElementsAre("body.fc", "norm.fc"));
  EXPECT_EQ(facts.slots[1].name, "norm.fc.weight");
  EXPECT_THAT(facts.slots[1].used_in, ElementsAre(0));
}

}  // namespace
}  // namespace onnx_external
