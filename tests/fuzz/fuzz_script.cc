// Any bytes as the two pickles and the code of a TorchScript archive.
#include <string_view>

#include "checkpoint/formats/zip_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/pieces.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view code = take_piece(input);
  const std::string_view constants = take_piece(input);
  const auto file = memory_file(script_archive(input, constants, code));
  OpenOptions options{.threads = 1};
  options.selection = selection_for(size);
  options.key = size % 5 == 0 ? "CONSTANTS" : "";
  read_part(read_zip_checkpoint(file, options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pieces_input(data, size, max_size, seed);
}
