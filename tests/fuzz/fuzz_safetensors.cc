// Any bytes as a safetensors file.
#include "checkpoint/safetensors.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto file = memory_file(data, size);
  (void)read_safetensors(file, {.selection = Selection::kEverything}).has_value();
  return 0;
}
