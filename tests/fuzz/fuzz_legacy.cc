// Any bytes as a legacy torch file, a tar file of torch 0.1, and a plain pickle.
#include "checkpoint/pickle_file.h"
#include "checkpoint/torch_legacy.h"
#include "checkpoint/torch_tar.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto file = memory_file(data, size);
  if (!file) {
    return 0;
  }
  OpenOptions options;
  options.selection = Selection::kEverything;
  for (const auto read : {read_torch_legacy, read_torch_tar, read_pickle_file}) {
    read_part(read(file, options));
  }
  return 0;
}
