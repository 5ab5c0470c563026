// Any three byte strings as the members of a tar file of torch 0.1 (its checksums are right), and
// any bytes as a tar file.
#include <algorithm>
#include <string_view>

#include "checkpoint/torch_tar.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "support/legacy_builder.h"

namespace {

// Takes a length of 16 bits and as many bytes, or what is left of them.
std::string_view take(std::string_view& input) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < 2 && i < input.size(); ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(input[i])) << (8 * i);
  }
  input.remove_prefix(std::min<std::size_t>(2, input.size()));
  const std::string_view taken = input.substr(0, length);
  input.remove_prefix(taken.size());
  return taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const OpenOptions options{.selection = Selection::kEverything};
  if (const auto file = memory_file(data, size)) {
    read_part(read_torch_tar(file, options));
  }
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string storages(take(input));
  const std::string tensors(take(input));
  const std::string bytes =
      tar_file({{"storages", storages}, {"tensors", tensors}, {"pickle", std::string(input)}});
  if (const auto file = memory_file(bytes.data(), bytes.size())) {
    read_part(read_torch_tar(file, options));
  }
  return 0;
}
