// Any bytes as a shard index, beside honest shards.
#include "checkpoint/formats/shard_index.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"
#include "support/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  static const TempDir folder;
  static const std::filesystem::path index = write_shards(folder);
  const auto file = memory_file(data, size, index);
  read_part(
      read_shard_index(*file, file->path().parent_path(), {.selection = Selection::kEverything}));
  return 0;
}
