#include "save/identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/read_back.h"
#include "base/safe_path.h"
#include "base/try.h"
#include "save/file_names.h"

namespace onnx_external {

Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                     const std::string& name) {
  UniqueFd fd(::openat(folder.fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot open"));
  }
  return SourceFile::adopt(std::move(fd), folder.child(name));
}

Result<std::shared_ptr<const SourceFile>> open_parent(const Directory& folder,
                                                      const std::string& name) {
  auto file = open_plain(folder, name);
  return file ? file : open_data_file(folder, name);
}

std::optional<ModelIdentity> identify_parent(const Directory& folder, const std::string& name) {
  const auto file = open_parent(folder, name);
  const auto crc = file ? range_crc32(**file, 0, (*file)->size()) : fail(file.error());
  return crc ? std::optional(ModelIdentity{(*file)->size(), *crc}) : std::nullopt;
}

Result<ModelIdentity> read_identity(const Directory& folder, const std::string& model_name) {
  TRY_ASSIGN(const auto file, open_plain(folder, model_name));
  TRY_ASSIGN(const auto crc, range_crc32(*file, 0, file->size()));
  return ModelIdentity{file->size(), crc};
}

Result<std::optional<ModelIdentity>> identity_in_place(const Directory& folder,
                                                       const std::string& model_name) {
  TRY_ASSIGN(const auto kind, folder.kind_of(model_name));
  if (kind != EntryKind::kFile) {
    return std::nullopt;
  }
  TRY_ASSIGN(const auto model, read_identity(folder, model_name));
  return model;
}

std::optional<ModelIdentity> identify(const Directory& folder, const std::string& model_name) {
  const auto model = read_identity(folder, model_name);
  return model ? std::optional(*model) : std::nullopt;
}

namespace {

using OpenFile = std::shared_ptr<const SourceFile>;

// Checks why an entry cannot be opened. An entry of another kind, or one that belongs to others and
// is not readable, is not an error.
Status check_not_ours(const Directory& folder, const std::string& name, EntryKind wanted,
                      const Error& error) {
  if (error.code == ErrorCode::kNotFound) {
    return {};
  }
  TRY_ASSIGN(const auto kind, folder.kind_of(name));
  const int mode = wanted == EntryKind::kFolder ? R_OK | X_OK : R_OK;
  const bool is_denied =
      ::faccessat(folder.fd(), name.c_str(), mode, AT_EACCESS) != 0 && errno == EACCES;
  return kind != wanted || is_denied ? Status() : fail(error);
}

// The manifest file that an entry of the output folder is, or has in it; null if there is none.
struct ManifestFile {
  std::string location;
  OpenFile file;
};

Result<OpenFile> open_if_ours(const Directory& folder, const std::string& name) {
  auto file = open_plain(folder, name);
  if (file) {
    return *std::move(file);
  }
  TRY(check_not_ours(folder, name, EntryKind::kFile, file.error()));
  return OpenFile();
}

Result<ManifestFile> manifest_file_at(const Directory& out, const std::string& entry) {
  if (stem_of_manifest_file(entry)) {
    TRY_ASSIGN(auto file, open_if_ours(out, entry));
    return ManifestFile{entry, std::move(file)};
  }
  const std::string name(kManifestName);
  const auto folder = out.open_folder(entry);
  if (!folder) {
    TRY(check_not_ours(out, entry, EntryKind::kFolder, folder.error()));
    return ManifestFile();
  }
  TRY_ASSIGN(auto file, open_if_ours(*folder, name));
  return ManifestFile{entry + "/" + name, std::move(file)};
}

// Returns nullopt if the file does not begin like a manifest.
Result<std::optional<bool>> is_manifest_of(const SourceFile& file, const std::string& model_name,
                                           const ModelIdentity& model) {
  std::string head(std::min<std::uint64_t>(file.size(), kManifestHeadBytes), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(head))));
  return begins_as_manifest_of({model_name, model.bytes, model.crc32}, head);
}

PlacedManifest placed(std::string location, Manifest manifest) {
  const std::size_t slash = location.find('/');
  const std::string folder = slash == std::string::npos ? "" : location.substr(0, slash + 1);
  for (ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.file.empty() && !manifest.is_linked(tensor.file)) {
      tensor.file.insert(0, folder);
    }
  }
  return {std::move(location), std::move(manifest)};
}

}  // namespace

Result<PlacedManifest> read_manifest(const Directory& out, const std::string& location) {
  const std::size_t slash = location.find('/');
  std::shared_ptr<const SourceFile> file;
  if (slash == std::string::npos) {
    TRY_ASSIGN(file, open_plain(out, location));
  } else {
    TRY_ASSIGN(const auto folder, out.open_folder(location.substr(0, slash)));
    TRY_ASSIGN(file, open_plain(folder, location.substr(slash + 1)));
  }
  TRY_ASSIGN(const auto text, read_file(*file, kMaxManifestBytes));
  TRY_ASSIGN(auto manifest, parse_manifest(text));
  return placed(location, std::move(manifest));
}

Result<std::vector<PlacedManifest>> find_manifests(const Directory& out,
                                                   const std::string& model_name,
                                                   const ModelIdentity& model) {
  TRY_ASSIGN(const auto entries, out.entries());
  std::vector<PlacedManifest> found;
  for (const std::string& entry : entries) {
    TRY_ASSIGN(auto at, manifest_file_at(out, entry));
    if (!at.file) {
      continue;
    }
    TRY_ASSIGN(const auto is_its, is_manifest_of(*at.file, model_name, model));
    if (is_its == false || at.file->size() > kMaxManifestBytes) {
      continue;
    }
    TRY_ASSIGN(const auto text, read_file(*at.file, kMaxManifestBytes));
    auto manifest = parse_manifest(text);
    if (manifest && manifest->model_file == model_name &&
        ModelIdentity{manifest->model_bytes, manifest->model_crc32} == model) {
      found.push_back(placed(std::move(at.location), *std::move(manifest)));
    }
  }
  return found;
}

}  // namespace onnx_external
