// Any bytes as a torch zip file: opened, and every small tensor read.
#include <algorithm>
#include <memory>
#include <vector>

#include "checkpoint/zip_checkpoint.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 16;
  const auto file = memory_file(data, size);
  auto part = read_zip_checkpoint(file, {.selection = Selection::kEverything});
  if (!part) {
    return 0;
  }
  auto contents = std::make_unique<Checkpoint::Contents>("/tmp");
  append_part(contents->all, *std::move(part));
  const Checkpoint checkpoint(std::move(contents));
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    std::vector<std::byte> bytes(std::min(checkpoint.nbytes(i), kMaxRead));
    (void)checkpoint.read(i, 0, bytes).has_value();
  }
  return 0;
}
