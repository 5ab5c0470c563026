#include "save/generations.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/range_crc.h"
#include "save/file_names.h"

namespace onnx_external {
namespace {

// A regular file of a folder, never through a link.
Result<std::shared_ptr<const SourceFile>> open_plain(const Directory& folder,
                                                     const std::string& name) {
  UniqueFd fd(::openat(folder.fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return fail(errno_error(errno, folder.child(name) + ": cannot open"));
  }
  return SourceFile::adopt(std::move(fd), folder.child(name));
}

// The manifest file, if it is that of this model. kIo: cannot tell.
Result<Manifest> read_manifest(const Directory& folder, const std::string& name,
                               const std::string& model_name, const ModelIdentity& model) {
  const auto file = open_plain(folder, name);
  const auto text = file ? read_file(**file, kMaxManifestBytes) : fail(file.error());
  auto manifest = text ? parse_manifest(*text) : fail(text.error());
  if (manifest && (manifest->model_file != model_name ||
                   ModelIdentity{manifest->model_bytes, manifest->model_crc32} != model)) {
    return fail(ErrorCode::kMismatch, "is another model's");
  }
  return manifest;
}

// The N of "model.N" for a file beside the model; nothing for any other.
std::optional<std::uint64_t> generation_of_file(const GenerationNames& names,
                                                std::string_view entry) {
  auto stem = stem_of_data_file(entry);
  stem = stem ? stem : stem_of_manifest_file(entry);
  return stem ? generation_of(*stem, data_stem(names.model)) : std::nullopt;
}

// The numbered stem of a manifest beside the model; nothing for any other entry.
std::optional<std::string_view> manifest_beside(const GenerationNames& names,
                                                std::string_view entry) {
  const auto stem = stem_of_manifest_file(entry);
  return stem && generation_of(*stem, data_stem(names.model)) ? stem : std::nullopt;
}

// The manifest of the generation that `entry` of the output folder stands for, if it is that of
// this model. kIo: cannot tell.
Result<Manifest> manifest_of(const Directory& out, const GenerationNames& names,
                             const std::string& entry, const ModelIdentity& model) {
  if (manifest_beside(names, entry)) {
    return read_manifest(out, entry, names.model, model);
  }
  const auto folder =
      generation_of(entry, names.folder) ? out.open_folder(entry) : fail(ErrorCode::kNotFound, "");
  return folder ? read_manifest(*folder, std::string(kManifestName), names.model, model)
                : fail(folder.error());
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

std::optional<std::uint64_t> newest_generation(const GenerationNames& names,
                                               std::span<const std::string> entries) {
  std::optional<std::uint64_t> newest;
  for (const std::string& entry : entries) {
    auto generation = generation_of(entry, names.folder);
    generation = generation ? generation : generation_of_file(names, entry);
    if (generation) {
      newest = std::max(newest.value_or(0), *generation);
    }
  }
  return newest;
}

std::optional<std::string> first_generation_file(const GenerationNames& names,
                                                 std::span<const std::string> entries) {
  for (const std::string& entry : entries) {
    if (generation_of_file(names, entry) == 0U) {
      return entry;
    }
  }
  return std::nullopt;
}

Result<Manifest> current_manifest(const Directory& out, const GenerationNames& names) {
  const auto kind = out.kind_of(names.model);
  if (!kind) {
    return fail(kind.error());
  }
  if (*kind != EntryKind::kFile) {
    return fail(ErrorCode::kNotFound, out.child(names.model) + ": no model");
  }
  const auto model = identify(out, names.model);
  const auto entries = out.entries();
  if (!model || !entries) {
    return fail(ErrorCode::kIo, out.child(names.model) + ": cannot be read");
  }
  Error none{ErrorCode::kNotFound, out.child(names.model) + ": has no manifest"};
  for (const std::string& entry : *entries) {
    auto manifest = manifest_of(out, names, entry, *model);
    if (manifest) {
      return manifest;
    }
    if (manifest.error().code == ErrorCode::kIo) {
      none = std::move(manifest).error();
    }
  }
  return fail(std::move(none));
}

namespace {

// The files that are the model's own, but for those in `kept` with `folder` before their names.
std::set<std::string> files_of(const Manifest& manifest, const std::string& folder,
                               const std::set<std::string>& kept) {
  std::set<std::string> files;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!manifest.is_linked(tensor.file) && !kept.contains(folder + tensor.file)) {
      files.insert(tensor.file);
    }
  }
  files.erase("");
  return files;
}

// True when none of the files is there any more.
bool remove_files(const Directory& folder, const std::set<std::string>& files) {
  bool all_gone = true;
  for (const std::string& file : files) {
    const auto kind = folder.kind_of(file);
    const bool gone = kind && (!*kind || (**kind == EntryKind::kFile && folder.remove_file(file)));
    all_gone = all_gone && gone;
  }
  return all_gone;
}

bool remove_folder(const Directory& out, const std::string& name, std::set<std::string> files) {
  const auto folder = out.open_folder(name);
  files.erase(std::string(kManifestName));
  const bool gone =
      folder && remove_files(*folder, files) && folder->remove_file(std::string(kManifestName));
  if (gone) {
    (void)out.remove_empty_folder(name);  // others may have put things into it
  }
  return gone;
}

bool remove_files_beside(const Directory& out, const std::string& manifest_name,
                         std::string_view stem, std::set<std::string> files) {
  std::erase_if(files, [&](const std::string& file) { return stem_of_data_file(file) != stem; });
  return remove_files(out, files) && out.remove_file(manifest_name).has_value();
}

}  // namespace

void remove_twin_manifests(const Directory& out, const GenerationNames& names,
                           const ModelIdentity& model) {
  const auto entries = out.entries();
  std::map<std::uint64_t, std::string> by_generation;
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const std::string& entry = (*entries)[i];
    const auto stem = manifest_beside(names, entry);
    const auto manifest =
        stem ? read_manifest(out, entry, names.model, model) : fail(ErrorCode::kNotFound, "");
    if (manifest && manifest->test_data.empty() && files_of(*manifest, "", {}).empty()) {
      by_generation.emplace(*generation_of(*stem, data_stem(names.model)), entry);
    }
  }
  for (auto twin = by_generation.begin(); by_generation.size() > 1;
       twin = by_generation.erase(twin)) {
    (void)out.remove_file(twin->second);
  }
}

std::set<std::string> entries_of(const Directory& out, const GenerationNames& names,
                                 const ModelIdentity& model) {
  std::set<std::string> found;
  const auto entries = out.entries();
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const std::string& entry = (*entries)[i];
    const auto manifest = manifest_of(out, names, entry, model);
    if (!manifest) {
      continue;
    }
    found.insert(entry);
    if (const auto stem = manifest_beside(names, entry)) {
      std::set<std::string> files = files_of(*manifest, "", {});
      std::erase_if(files,
                    [&](const std::string& file) { return stem_of_data_file(file) != stem; });
      found.merge(files);
    }
  }
  return found;
}

bool remove_data_of(const Directory& out, const GenerationNames& names, const ModelIdentity& model,
                    const std::set<std::string>& kept) {
  const auto entries = out.entries();
  bool all_gone = entries.has_value();
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const std::string& entry = (*entries)[i];
    const auto manifest = manifest_of(out, names, entry, model);
    if (!manifest) {
      all_gone = all_gone && manifest.error().code != ErrorCode::kIo;
      continue;
    }
    remove_test_data(out, *manifest, kept);
    const auto stem = manifest_beside(names, entry);
    const bool gone = stem ? remove_files_beside(out, entry, *stem, files_of(*manifest, "", kept))
                           : remove_folder(out, entry, files_of(*manifest, entry + "/", kept));
    all_gone = all_gone && gone;
  }
  return all_gone;
}

}  // namespace onnx_external
