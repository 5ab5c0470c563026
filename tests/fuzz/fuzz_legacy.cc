// Any bytes as a file whose start tells what it is: mostly a legacy torch file or a plain pickle.
#include "checkpoint/formats/checkpoint_file.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/read_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto file = memory_file(data, size);
  read_part(read_checkpoint_file(file, {.selection = selection_for(size), .densify = true}));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pickle_input(data, size, max_size, seed);
}
