// Any bytes as the JSON that says where the weights of an exported program are.
#include "checkpoint/formats/exported_program.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const std::string_view config(reinterpret_cast<const char*>(data), size);
  if (const auto zip = ZipArchive::open(memory_file(exported_archive(config)))) {
    OpenOptions options{.widen_complex32 = true};
    options.selection = selection_for(size);
    options.key = size % 5 == 0 ? "model" : "";
    read_part(read_exported_program(*zip, options));
  }
  return 0;
}
