// An exporter whose tensors come one by one: each is written as it comes, and may go away then. So
// a model of any size, here of 8 matrices, is written in the memory of its largest tensors.
//
// usage: stream_tensors OUT_DIR
#include <onnx_external/onnx_external.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace oe = onnx_external;

constexpr int kLayers = 8;
constexpr std::array<std::int64_t, 2> kShape{64, 64};

std::string weight_name(int layer) {
  return "layers." + std::to_string(layer) + ".weight";
}

void add_value(onnx::ValueInfoProto* value, const std::string& name) {
  value->set_name(name);
  auto* type = value->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  type->mutable_shape()->add_dim()->set_dim_param("batch");
  type->mutable_shape()->add_dim()->set_dim_value(kShape[0]);
}

// The graph has the names of the weights only; finish() appends their initializers.
onnx::ModelProto make_graph() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  auto* graph = model.mutable_graph();
  graph->set_name("stack");
  add_value(graph->add_input(), "x0");
  for (int layer = 0; layer < kLayers; ++layer) {
    auto* node = graph->add_node();
    node->set_op_type("MatMul");
    node->add_input("x" + std::to_string(layer));
    node->add_input(weight_name(layer));
    node->add_output("x" + std::to_string(layer + 1));
  }
  add_value(graph->add_output(), "x" + std::to_string(kLayers));
  return model;
}

oe::Status write_model(const std::filesystem::path& path) {
  auto writer = oe::Writer::create(path, {.layout = oe::Layout::kSingle});
  if (!writer) {
    return oe::fail(writer.error());
  }
  for (int layer = 0; layer < kLayers; ++layer) {  // add() may be called from several threads, too
    // Stands for whatever makes a tensor: a download, a conversion, a training.
    const std::vector<float> values(kShape[0] * kShape[1], 1.0F / static_cast<float>(layer + 64));
    const auto bytes = std::as_bytes(std::span(values));
    if (auto added = writer->add(weight_name(layer), oe::DType::kFloat32, kShape, bytes); !added) {
      return oe::fail(added.error());  // the writer goes away, and with it all that was written
    }
  }
  return writer->finish(make_graph());  // reads everything back, then the model appears
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: stream_tensors OUT_DIR\n";
    return 2;
  }
  const auto path = std::filesystem::path(argv[1]) / "model.onnx";
  if (const auto status = write_model(path); !status) {
    std::cerr << status.error() << "\n";
    return 1;
  }
  std::cout << path.string() << ": " << kLayers << " tensors\n";
  return 0;
}
