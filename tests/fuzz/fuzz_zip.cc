// Any bytes as a torch zip file: opened, and every small tensor read.
#include "checkpoint/zip_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  if (const auto file = memory_file(data, size)) {
    read_part(read_zip_checkpoint(file, {.selection = Selection::kEverything}));
  }
  return 0;
}
