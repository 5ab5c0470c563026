// Any bytes as a GGUF file.
#include "checkpoint/gguf/gguf_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  read_part(read_gguf(memory_file(data, size), {.selection = selection_for(size)}));
  return 0;
}
