// Any bytes as the pickle of a torch zip file, beside records that honest tensors view: what is
// sparse, quantized, widened, nested or a numpy value is put together and read.
#include "checkpoint/zip_checkpoint.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const std::string bytes =
      values_file(std::string_view(reinterpret_cast<const char*>(data), size));
  if (const auto file = memory_file(bytes.data(), bytes.size())) {
    OpenOptions options{.densify = true, .widen_complex32 = true};
    read_part(read_zip_checkpoint(file, options));
    options.selection = Selection::kEverything;
    read_part(read_zip_checkpoint(file, options));
  }
  return 0;
}
