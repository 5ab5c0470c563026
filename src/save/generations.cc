#include "save/generations.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/range_crc.h"
#include "save/file_names.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxGenerationDigits = 18;

// A regular file of a folder, never through a link.
Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                     const std::string& name) {
  UniqueFd fd(::openat(folder.fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot open"));
  }
  return SourceFile::adopt(std::move(fd), folder.child(name));
}

Result<Manifest> read_manifest(const Directory& folder) {
  auto file = open_plain(folder, std::string(kManifestName));
  if (!file) {
    return fail(std::move(file).error());
  }
  auto text = read_file(**file, kMaxManifestBytes);
  if (!text) {
    return fail(std::move(text).error());
  }
  return parse_manifest(*text);
}

// The manifest in the folder `name`, if it is that of this model.
std::optional<Manifest> manifest_of(const Directory& out, const std::string& name,
                                    const std::string& model_name, const ModelIdentity& model) {
  const auto folder = out.open_folder(name);
  auto manifest = folder ? read_manifest(*folder) : fail(folder.error());
  if (!manifest || manifest->model_file != model_name ||
      ModelIdentity{manifest->model_bytes, manifest->model_crc32} != model) {
    return std::nullopt;
  }
  return *std::move(manifest);
}

// Removes the recorded inputs that a manifest lists, but for those that the current model has too,
// or that are not what it recorded.
void remove_test_data(const Directory& out, const Manifest& manifest,
                      const std::set<std::string>& kept) {
  std::set<std::string> folders;
  for (const ManifestFile& record : manifest.test_data) {
    const std::size_t slash = record.file.find('/');
    const std::string name = record.file.substr(slash + 1);
    const auto folder = kept.contains(record.file) ? fail(ErrorCode::kNotFound, "")
                                                   : out.open_folder(record.file.substr(0, slash));
    if (folder && is_as_recorded(*folder, name, record) && folder->remove_file(name)) {
      folders.insert(record.file.substr(0, slash));
    }
  }
  for (const std::string& name : folders) {
    (void)out.remove_empty_folder(name);
  }
}

}  // namespace

std::optional<std::uint64_t> generation_of(std::string_view name, std::string_view base) {
  if (!name.starts_with(base)) {
    return std::nullopt;
  }
  std::string_view rest = name.substr(base.size());
  if (rest.empty()) {
    return 0;
  }
  if (rest.size() < 2 || rest.size() > kMaxGenerationDigits + 1 || rest[0] != '.' ||
      rest[1] == '0' || rest.find_first_not_of("0123456789", 1) != std::string_view::npos) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
  return number;
}

std::string_view generation_base(std::string_view data_dir) {
  const std::string_view base = data_dir.substr(0, data_dir.rfind('.'));
  return generation_of(data_dir, base) ? base : data_dir;
}

std::optional<ModelIdentity> identify(const Directory& folder, const std::string& model_name) {
  const auto file = open_plain(folder, model_name);
  if (!file) {
    return std::nullopt;
  }
  const auto crc = range_crc32(**file, 0, (*file)->size());
  if (!crc) {
    return std::nullopt;
  }
  return ModelIdentity{(*file)->size(), *crc};
}

bool holds_only_inputs(const Directory& folder) {
  const auto entries = folder.entries();
  return entries && std::all_of(entries->begin(), entries->end(), [&](const std::string& name) {
           const auto kind = folder.kind_of(name);
           return kind && *kind == EntryKind::kFile && is_test_input_name(name);
         });
}

bool is_as_recorded(const Directory& folder, const std::string& name, const ManifestFile& record) {
  const auto file = open_plain(folder, name);
  const auto crc = file && (*file)->size() == record.length ? range_crc32(**file, 0, record.length)
                                                            : fail(ErrorCode::kNotFound, "");
  return crc && *crc == record.crc32;
}

std::optional<Manifest> current_manifest(const Directory& out, const std::string& model_name,
                                         std::string_view base) {
  const auto model = identify(out, model_name);
  const auto entries = out.entries();
  std::optional<Manifest> found;
  for (std::size_t i = 0; model && entries && !found && i < entries->size(); ++i) {
    if (generation_of((*entries)[i], base)) {
      found = manifest_of(out, (*entries)[i], model_name, *model);
    }
  }
  return found;
}

void remove_generation(const Directory& out, const std::string& name, const std::string& model_name,
                       const ModelIdentity& model, const std::set<std::string>& kept) {
  const auto manifest = manifest_of(out, name, model_name, model);
  const auto folder = out.open_folder(name);
  if (!manifest || !folder) {
    return;
  }
  remove_test_data(out, *manifest, kept);
  std::set<std::string> files;
  for (const ManifestTensor& tensor : manifest->tensors) {
    files.insert(tensor.file);
  }
  files.erase("");
  files.erase(std::string(kManifestName));
  bool all_gone = true;
  for (const std::string& file : files) {
    const auto kind = folder->kind_of(file);
    const bool gone = kind && (!*kind || (**kind == EntryKind::kFile && folder->remove_file(file)));
    all_gone = all_gone && gone;
  }
  if (all_gone && folder->remove_file(std::string(kManifestName))) {
    (void)out.remove_empty_folder(name);
  }
}

}  // namespace onnx_external
