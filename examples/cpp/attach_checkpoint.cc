// Attaches a checkpoint to a graph that was exported without weights.
//
// usage: attach_checkpoint GRAPH.onnx CHECKPOINT OUT_DIR
//
// CHECKPOINT is a file in any format of torch, safetensors, or a folder of them. OUT_DIR/model.onnx
// appears only when all of it is written and every byte was read back; after an error OUT_DIR is as
// it was. A program that may replace a model sets options.write.overwrite.
#include <onnx_external/onnx_external.h>

#include <iostream>

namespace oe = onnx_external;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: attach_checkpoint GRAPH.onnx CHECKPOINT OUT_DIR\n";
    return 2;
  }

  // First without writing: which key fills which weight, and what a save would refuse.
  oe::SaveRequest request{.graph = argv[1], .checkpoint = {argv[2]}, .folder = argv[3]};
  request.options.plan.layout = oe::Layout::kSingle;  // one data file, beside the model
  request.options.mode = oe::RunMode::kDryRun;
  const auto planned = oe::save(request);
  if (!planned) {
    std::cerr << planned.error() << "\n";  // what is missing, what is left over, remedies
    return 1;
  }
  for (const auto& tensor : planned->models.front().tensors) {
    std::cout << tensor.slot << " from " << tensor.key << ", " << tensor.length << " bytes\n";
  }

  request.options.mode = oe::RunMode::kWrite;
  const auto saved = oe::save(request);
  if (!saved) {
    std::cerr << saved.error() << "\n";
    return 1;
  }
  std::cout << saved->models.front().tensors.size() << " tensors, " << saved->bytes << " bytes, "
            << (saved->verified ? "verified" : "not verified") << "\n";
  return 0;
}
