#include "save/generations.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/range_crc.h"
#include "base/safe_path.h"
#include "base/try.h"
#include "onnx_external/model.h"
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

namespace {

std::optional<bool> is_manifest_of(const SourceFile& file, const std::string& model_name,
                                   const ModelIdentity& model) {
  std::string head(std::min<std::uint64_t>(file.size(), kManifestHeadBytes), '\0');
  return file.read(0, std::as_writable_bytes(std::span(head)))
             ? begins_as_manifest_of({model_name, model.bytes, model.crc32}, head)
             : std::nullopt;
}

// Reads a manifest file. kMismatch if it is of another model; kIo if that is not known.
Result<Manifest> read_manifest(const SourceFile& file, const std::string& model_name,
                               const ModelIdentity& model) {
  if (is_manifest_of(file, model_name, model) == false) {
    return fail(ErrorCode::kMismatch, "is another model's");
  }
  TRY_ASSIGN(const auto text, read_file(file, kMaxManifestBytes));
  TRY_ASSIGN(auto manifest, parse_manifest(text));
  if (manifest.model_file != model_name ||
      ModelIdentity{manifest.model_bytes, manifest.model_crc32} != model) {
    return fail(ErrorCode::kMismatch, "is another model's");
  }
  return manifest;
}

// The N of a data file beside the model. The file must have a name of the form that the library or
// the Python package gives, or that of this save; nothing for any other.
std::optional<std::uint64_t> generation_of_data(const GenerationNames& names,
                                                std::string_view entry) {
  for (const std::string& data :
       {names.data, std::string(), names.model + ".data", set_data_name(names.folder, "")}) {
    if (const auto found = generation_of_data_file(entry, data_name_of(names.model, data))) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> generation_of_manifest_file(const GenerationNames& names,
                                                         std::string_view entry) {
  const auto stem = stem_of_manifest_file(entry);
  return stem ? generation_of(*stem, data_stem(names.model)) : std::nullopt;
}

// The numbered stem of a manifest beside the model; nothing for any other entry.
std::optional<std::string_view> manifest_beside(const GenerationNames& names,
                                                std::string_view entry) {
  const auto stem = stem_of_manifest_file(entry);
  return stem && generation_of(*stem, data_stem(names.model)) ? stem : std::nullopt;
}

// The manifest file of the generation that `entry` of the output folder stands for.
Result<std::shared_ptr<const SourceFile>> open_manifest(const Directory& out,
                                                        const GenerationNames& names,
                                                        const std::string& entry) {
  if (manifest_beside(names, entry)) {
    return open_plain(out, entry);
  }
  const auto folder = out.open_folder(entry);
  auto file = folder ? open_plain(*folder, std::string(kManifestName)) : fail(folder.error());
  // A folder of another name may belong to anybody: it counts only if it has a manifest.
  return file || generation_of(entry, names.folder)
             ? std::move(file)
             : fail(ErrorCode::kNotFound, out.child(entry) + ": has no manifest");
}

// Returns the manifest of the entry if it is this model's. kIo if that cannot be found out.
Result<Manifest> manifest_of(const Directory& out, const GenerationNames& names,
                             const std::string& entry, const ModelIdentity& model) {
  TRY_ASSIGN(const auto file, open_manifest(out, names, entry));
  return read_manifest(*file, names.model, model);
}

// The folder of a location, and the name in it; no folder for a file beside the model.
std::pair<std::string, std::string> folder_and_name(const std::string& location) {
  const std::size_t slash = location.find('/');
  return slash == std::string::npos
             ? std::pair(std::string(), location)
             : std::pair(location.substr(0, slash), location.substr(slash + 1));
}

// The manifest of `entry` with its own files as locations.
Manifest located(Manifest manifest, const GenerationNames& names, const std::string& entry) {
  for (ManifestTensor& tensor : manifest.tensors) {
    if (!manifest_beside(names, entry) && !tensor.file.empty() &&
        !manifest.is_linked(tensor.file)) {
      tensor.file = entry + "/" + tensor.file;
    }
  }
  return manifest;
}

}  // namespace

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

std::optional<std::uint64_t> generation_of_location(const GenerationNames& names,
                                                    std::string_view location) {
  const std::size_t slash = location.find('/');
  if (slash != std::string_view::npos) {
    return generation_of(location.substr(0, slash), names.folder);
  }
  return generation_of_data(names, location);
}

std::optional<std::uint64_t> newest_generation(const GenerationNames& names,
                                               std::span<const std::string> entries) {
  std::optional<std::uint64_t> newest;
  for (const std::string& entry : entries) {
    auto generation = generation_of(entry, names.folder);
    generation = generation ? generation : generation_of_data(names, entry);
    generation = generation ? generation : generation_of_manifest_file(names, entry);
    if (generation) {
      newest = std::max(newest.value_or(0), *generation);
    }
  }
  return newest;
}

namespace {

Result<Manifest> find_manifest(const Directory& out, const GenerationNames& names,
                               const ModelIdentity& model) {
  const auto entries = out.entries();
  if (!entries) {
    return fail(ErrorCode::kIo, out.path().string() + ": cannot be listed");
  }
  Error none{ErrorCode::kNotFound, out.child(names.model) + ": has no manifest"};
  for (const std::string& entry : *entries) {
    auto manifest = manifest_of(out, names, entry, model);
    if (manifest) {
      return located(*std::move(manifest), names, entry);
    }
    if (manifest.error().code == ErrorCode::kIo) {
      none = std::move(manifest).error();
    }
  }
  return fail(std::move(none));
}

}  // namespace

bool has_manifest(const Directory& out, const GenerationNames& names) {
  const auto entries = out.entries();
  const auto model = identify(out, names.model);
  return entries && model &&
         std::any_of(entries->begin(), entries->end(), [&](const std::string& entry) {
           const auto file = open_manifest(out, names, entry);
           return file && is_manifest_of(**file, names.model, *model) == true;
         });
}

Result<Manifest> current_manifest(const Directory& out, const GenerationNames& names) {
  TRY_ASSIGN(const auto kind, out.kind_of(names.model));
  if (kind != EntryKind::kFile) {
    return fail(ErrorCode::kNotFound, out.child(names.model) + ": no model");
  }
  const auto model = identify(out, names.model);
  return model ? find_manifest(out, names, *model)
               : fail(ErrorCode::kIo, out.child(names.model) + ": cannot be read");
}

std::optional<FileSet> current_files(const Directory& out, const GenerationNames& names,
                                     const std::optional<ModelIdentity>& current) {
  FileSet files;
  if (!current) {
    const auto kind = out.kind_of(names.model);
    return kind && *kind != EntryKind::kFile ? std::optional(files) : std::nullopt;
  }
  const auto manifest = find_manifest(out, names, *current);
  if (!manifest && manifest.error().code != ErrorCode::kNotFound) {
    return std::nullopt;
  }
  if (manifest) {
    for (const ManifestTensor& tensor : manifest->tensors) {
      files.insert(tensor.file);
    }
    return files;
  }
  const auto model = Model::load(out.path() / names.model);
  if (!model) {
    return model.error().code == ErrorCode::kIo ? std::nullopt : std::optional(files);
  }
  for (const ExternalTensor& tensor : model->external_tensors()) {
    files.insert(tensor.location);
  }
  return files;
}

namespace {

// The files that are the model's own, as locations, but for those in `in_use`.
std::set<std::string> files_of(const Manifest& located, const FileSet& in_use) {
  std::set<std::string> files;
  for (const ManifestTensor& tensor : located.tensors) {
    if (!located.is_linked(tensor.file) && !in_use.contains(tensor.file)) {
      files.insert(tensor.file);
    }
  }
  files.erase("");
  return files;
}

// Whether one of these models has no manifest of its own; nothing if that cannot be read.
std::optional<bool> lacks_manifest(const Directory& out, const std::set<std::string>& models,
                                   const std::string& folder) {
  bool lacks = false;
  for (const std::string& name : models) {
    const auto model = identify(out, name);
    const auto manifest =
        model ? find_manifest(out, {name, folder}, *model) : fail(ErrorCode::kIo, "");
    if (!manifest && manifest.error().code != ErrorCode::kNotFound) {
      return std::nullopt;
    }
    lacks = lacks || !manifest;
  }
  return lacks;
}

bool holds_other_model(const Directory& folder, const GenerationNames& names) {
  const auto file = open_plain(folder, std::string(kManifestName));
  const auto text = file ? read_file(**file, kMaxManifestBytes) : fail(file.error());
  const auto manifest = text ? parse_manifest(*text) : fail(text.error());
  return manifest && manifest->model_file != names.model;
}

// True when the file is not there any more.
bool remove_one(const Directory& folder, const std::string& name) {
  const auto kind = folder.kind_of(name);
  return kind && (!*kind || (**kind == EntryKind::kFile && folder.remove_file(name)));
}

// True when the tensors that the manifest lists in this file lie inside it and, if asked for, have
// the recorded CRC-32s. If the file has no others, they end where it ends.
enum class Others : std::uint8_t { kNone, kPerhaps };
bool is_as_listed(const Directory& folder, const std::string& name, const Manifest& located,
                  const std::string& location, bool compare_bytes, Others others) {
  const auto file = open_plain(folder, name);
  std::uint64_t end = 0;
  bool equal = file.has_value();
  for (const ManifestTensor& tensor : located.tensors) {
    if (!equal || tensor.file != location) {
      continue;
    }
    end = std::max(end, tensor.offset + tensor.length);
    if (compare_bytes) {
      const auto crc = range_crc32(**file, tensor.offset, tensor.length);
      equal = crc && tensor.crc32 == *crc;
    }
  }
  return equal && (others == Others::kNone ? (*file)->size() == end : end <= (*file)->size());
}

// The N of the generation whose manifest `entry` is or contains.
std::uint64_t generation_of_manifest(const GenerationNames& names, const std::string& entry) {
  const auto stem = manifest_beside(names, entry);
  const auto number =
      stem ? generation_of(*stem, data_stem(names.model)) : generation_of(entry, names.folder);
  return number.value_or(0);
}

// Removes the files that a manifest lists, one after another.
class Remover {
 public:
  // `located`: the manifest that `entry` stands for.
  Remover(const Directory& out, const GenerationNames& names, const std::string& entry,
          const Manifest& located)
      : out_(out),
        names_(names),
        entry_(entry),
        located_(located),
        newest_(generation_of_manifest(names, entry)) {}

  // Removes folders that are empty then, too. True when none of the files is there any more.
  bool remove(const std::set<std::string>& files) {
    bool all_gone = true;
    for (const std::string& file : files) {
      all_gone = remove_file(file) && all_gone;
    }
    for (const auto& [name, folder] : folders_) {
      (void)out_.remove_empty_folder(name);
    }
    return all_gone && opened_all_;
  }

 private:
  // False when the file still exists and should have been removed.
  bool remove_file(const std::string& file) {
    const auto generation = generation_of_location(names_, file);
    const bool is_known = generation && *generation <= newest_;
    const auto [folder_name, name] = folder_and_name(file);
    if (folder_name.empty()) {
      // Other models of a set may have data in the file, too.
      const Others others_in_it = located_.set.empty() ? Others::kNone : Others::kPerhaps;
      const bool is_ours =
          is_known || (!generation && !data_name_fault(names_.model, name) &&
                       is_as_listed(out_, name, located_, file, true, others_in_it));
      return !is_ours || remove_one(out_, name);
    }
    const std::optional<Directory>& folder = open(folder_name);
    const bool is_ours = folder && name.find('/') == std::string::npos &&
                         (is_known || is_as_listed(*folder, name, located_, file,
                                                   folder_name != entry_, Others::kNone));
    return !is_ours || remove_one(*folder, name);
  }

  // Nothing when it is not there, or another model's.
  const std::optional<Directory>& open(const std::string& name) {
    const auto [place, is_new] = folders_.try_emplace(name);
    if (is_new) {
      auto opened = out_.open_folder(name);
      opened_all_ = opened_all_ && (opened || opened.error().code == ErrorCode::kNotFound);
      if (opened && (name == entry_ || !holds_other_model(*opened, names_))) {
        place->second = *std::move(opened);
      }
    }
    return place->second;
  }

  const Directory& out_;
  const GenerationNames& names_;
  const std::string& entry_;
  const Manifest& located_;
  std::uint64_t newest_;
  std::map<std::string, std::optional<Directory>> folders_;
  bool opened_all_ = true;
};

// Removes the manifest that `entry` stands for, and its folder when nothing else is in it.
bool remove_manifest(const Directory& out, const GenerationNames& names, const std::string& entry) {
  if (manifest_beside(names, entry)) {
    return out.remove_file(entry).has_value();
  }
  const auto folder = out.open_folder(entry);
  const bool gone = folder && folder->remove_file(std::string(kManifestName));
  if (gone) {
    (void)out.remove_empty_folder(entry);  // others may have put things into it
  }
  return gone;
}

}  // namespace

bool remove_duplicate_manifests(const Directory& out, const GenerationNames& names,
                                const ModelIdentity& model, const std::string& newest) {
  struct Duplicate {
    std::string entry;
    std::set<std::string> files;
  };
  const auto entries = out.entries();
  bool all_gone = entries.has_value();
  // By generation, but `newest` last.
  std::map<std::pair<std::uint64_t, std::string>, Duplicate> duplicates;
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const std::string& entry = (*entries)[i];
    const auto manifest = manifest_of(out, names, entry, model);
    all_gone = all_gone && (manifest || manifest.error().code != ErrorCode::kIo);
    if (manifest) {
      const std::uint64_t number = entry == newest ? std::numeric_limits<std::uint64_t>::max()
                                                   : generation_of_manifest(names, entry);
      duplicates.emplace(std::pair(number, entry),
                         Duplicate{entry, files_of(located(*manifest, names, entry), {})});
    }
  }
  for (auto duplicate = duplicates.begin(); duplicates.size() > 1;
       duplicate = duplicates.erase(duplicate)) {
    if (duplicate->second.files == duplicates.rbegin()->second.files) {
      all_gone = remove_manifest(out, names, duplicate->second.entry) && all_gone;
    }
  }
  return all_gone;
}

RemovedData remove_data_of(const Directory& out, const GenerationNames& names,
                           const ModelIdentity& model, const FileSet& in_use,
                           const FilesInUse& others) {
  const auto entries = out.entries();
  RemovedData removed{entries.has_value(), {}};
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const std::string& entry = (*entries)[i];
    auto manifest = manifest_of(out, names, entry, model);
    if (!manifest) {
      removed.all_gone = removed.all_gone && manifest.error().code != ErrorCode::kIo;
      continue;
    }
    const Manifest known = located(*std::move(manifest), names, entry);
    std::set<std::string> files = files_of(known, in_use);
    std::set<std::string> users;  // of files that stay
    std::erase_if(files, [&](const std::string& file) {
      const auto user = others.find(file);
      if (user != others.end()) {
        removed.left_for.emplace_back(file, user->second);
        users.insert(user->second);
      }
      return user != others.end();
    });
    const auto is_needed = lacks_manifest(out, users, names.folder);
    if (!is_needed) {
      removed.all_gone = false;
      continue;
    }
    const bool gone = Remover(out, names, entry, known).remove(files) &&
                      (*is_needed || remove_manifest(out, names, entry));
    removed.all_gone = removed.all_gone && gone;
  }
  return removed;
}

}  // namespace onnx_external
