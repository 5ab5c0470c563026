// Any bytes as a manifest. What is read is written so that it reads the same again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "save/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto manifest = parse_manifest({reinterpret_cast<const char*>(data), size});
  if (manifest) {
    const auto again = parse_manifest(manifest_text(*manifest));
    if (!again || *again != *manifest) {
      std::abort();
    }
  }
  return 0;
}
