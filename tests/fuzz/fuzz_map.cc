// Any bytes as a map file, or as a renaming (s/RE/REPL/). What is read is written so that it reads
// the same again.
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/memory_file.h"
#include "onnx_external/mapping.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  if (const std::string_view text(reinterpret_cast<const char*>(data), size);
      text.starts_with('s')) {
    (void)parse_rename(text).has_value();
    return 0;
  }
  const auto pairs = read_map_file(memory_path(data, size));
  if (!pairs) {
    return 0;
  }
  const std::string text = map_file_text(pairs->map, {}, pairs->derived);
  const auto again = read_map_file(memory_path(text.data(), text.size()));
  if (!again || *again != *pairs) {
    std::abort();
  }
  return 0;
}
