// Any bytes as a torch zip file: opened, and every tensor looked into.
#include "checkpoint/formats/zip_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "fuzz/zip_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  OpenOptions options{.densify = true, .widen_complex32 = true, .threads = 1};
  options.selection = selection_for(size);
  if (size % 5 == 0) {
    options.key.assign(1, '.');  // g++ 12 warns of the text "."
  }
  read_part(read_zip_checkpoint(memory_file(data, size), options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_zip_input(data, size, max_size, seed);
}
