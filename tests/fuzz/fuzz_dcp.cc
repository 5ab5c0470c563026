// Any bytes as the .metadata of a distributed checkpoint, beside the parts of an honest one.
#include "checkpoint/dcp/dcp.h"
#include "fuzz/memory_file.h"
#include "fuzz/pickle_mutator.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"
#include "support/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  static const TempDir dir;
  static const std::filesystem::path folder = write_dcp(dir, dcp_seed());
  const auto file = memory_file(data, size, folder / kDcpMetadataName);
  OpenOptions options;
  options.selection = selection_for(size);
  options.key = size % 5 == 0 ? "model" : size % 5 == 1 ? "." : "";
  read_part(read_dcp(file, options));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pickle_input(data, size, max_size, seed);
}
