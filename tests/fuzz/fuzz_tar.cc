// Any three byte strings as the members of a tar file of torch 0.1 (its checksums are right), and
// any bytes as a tar file.
#include <string_view>

#include "checkpoint/formats/torch_tar.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/pieces.h"
#include "fuzz/read_part.h"
#include "support/legacy_builder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const OpenOptions options{.selection = selection_for(size)};
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.substr(0, 512).find("ustar") != std::string_view::npos) {
    read_part(read_torch_tar(memory_file(data, size), options));
    return 0;
  }
  const std::string storages(take_piece(input));
  const std::string tensors(take_piece(input));
  read_part(read_torch_tar(
      memory_file(
          tar_file({{"storages", storages}, {"tensors", tensors}, {"pickle", std::string(input)}})),
      options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pieces_input(data, size, max_size, seed);
}
