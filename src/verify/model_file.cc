#include "verify/model_file.h"

#include <fcntl.h>

#include <utility>

#include "base/file.h"
#include "base/range_crc.h"
#include "onnx/load.h"

namespace onnx_external {

Result<ModelFile> read_model_file(const std::filesystem::path& path, DropCache drop_cache) {
  auto loaded = load_model_file(path);
  if (!loaded) {
    return fail(std::move(loaded).error());
  }
  const SourceFile& file = *loaded->file;
  if (drop_cache != DropCache::kNo) {
    drop_pages(file.fd());
  }
  const auto crc = range_crc32(file, 0, file.size());
  if (!crc) {
    return fail(crc.error());
  }
  return ModelFile{loaded->file, std::move(loaded->proto), std::move(loaded->cuts), file.size(),
                   *crc,         path.parent_path(),       path.filename().string()};
}

bool is_current(const std::filesystem::path& path, const ModelFile& model) {
  const auto now = SourceFile::open(path);
  return now && model.file->same_file(**now);
}

}  // namespace onnx_external
