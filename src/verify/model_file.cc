#include "verify/model_file.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/file.h"
#include "base/read_back.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/load.h"

namespace onnx_external {

Result<ModelFile> read_model_file(const std::filesystem::path& path, DropCache drop_cache) {
  TRY_ASSIGN(auto loaded, load_model_file(path));
  const SourceFile& file = *loaded.file;
  if (drop_cache == DropCache::kYes) {
    drop_pages(file.fd());
  }
  TRY_ASSIGN(const auto crc, range_crc32(file, 0, file.size()));
  return ModelFile{loaded.file, std::move(loaded.proto), std::move(loaded.cuts),  file.size(),
                   crc,         path.parent_path(),      path.filename().string()};
}

Result<std::filesystem::path> find_model(const std::filesystem::path& path) {
  constexpr std::size_t kMostNamed = 8;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return path;
  }
  TRY_ASSIGN(const auto folder, Directory::open(path));
  TRY_ASSIGN(auto models, folder.entries());
  std::erase_if(models, [](const std::string& name) { return !name.ends_with(".onnx"); });
  if (models.empty()) {
    return fail(ErrorCode::kNotFound, path.string() + ": contains no *.onnx file");
  }
  const auto usual = std::find(models.begin(), models.end(), "model.onnx");
  if (models.size() > 1 && usual == models.end()) {
    return fail(ErrorCode::kAmbiguous, path.string() + ": contains several models (" +
                                           quote_list(models, kMostNamed) + "); choose one");
  }
  return path / (usual != models.end() ? *usual : models.front());
}

bool is_current(const std::filesystem::path& path, const ModelFile& model) {
  const auto now = SourceFile::open(path);
  return now && model.file->same_file(**now);
}

}  // namespace onnx_external
