// Any bytes as the pickle of a torch zip file, beside records that honest tensors view: what is
// sparse, quantized, widened, nested or a numpy value is put together and read.
#include "checkpoint/formats/zip_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto file =
      memory_file(values_file(std::string_view(reinterpret_cast<const char*>(data), size)));
  OpenOptions options{.densify = true, .widen_complex32 = true, .threads = 1};
  options.selection = selection_for(size);
  read_part(read_zip_checkpoint(file, options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pickle_input(data, size, max_size, seed);
}
