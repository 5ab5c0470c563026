// Any bytes as a legacy torch file, or as a plain pickle: the start tells which.
#include <string_view>

#include "checkpoint/pickle_file.h"
#include "checkpoint/pickle_stream.h"
#include "checkpoint/torch_legacy.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/read_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto file = memory_file(data, size);
  const OpenOptions options{.selection = Selection::kEverything, .densify = true};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_part(is_legacy_torch(bytes) ? read_torch_legacy(file, options)
                                   : read_pickle_file(file, options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pickle_input(data, size, max_size, seed);
}
