// usage: consumer GRAPH.onnx CHECKPOINT OUT_DIR
#include <onnx_external/save_external.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  const std::filesystem::path checkpoint[] = {argv[2]};
  const auto report = onnx_external::save_graph_with_external_data(
      argv[3], "model.onnx", "initializers", checkpoint, argv[1]);
  if (!report) {
    std::cerr << report.error().message << "\n";
    return 1;
  }
  std::cout << report->tensors.size() << " tensors, verified: " << report->verified << "\n";
  return report->verified ? 0 : 1;
}
