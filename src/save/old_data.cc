#include "save/old_data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/read_back.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Opens the folders of locations, each once.
class FoldersOf {
 public:
  explicit FoldersOf(const Directory& out) : out_(out) {}

  // Returns null if there is no such folder.
  Result<const Directory*> folder_of(const std::string& location) {
    const std::size_t slash = location.find('/');
    if (slash == std::string::npos) {
      return &out_;
    }
    const auto [place, is_new] = opened_.try_emplace(location.substr(0, slash));
    if (is_new) {
      auto opened = out_.open_folder(place->first);
      if (!opened && opened.error().code != ErrorCode::kNotFound) {
        opened_.erase(place);
        return fail(std::move(opened).error());
      }
      if (opened) {
        place->second = *std::move(opened);
      }
    }
    return place->second ? &*place->second : nullptr;
  }

  void remove_empty() const {
    for (const auto& [name, folder] : opened_) {
      (void)out_.remove_empty_folder(name);
    }
  }

 private:
  const Directory& out_;
  std::map<std::string, std::optional<Directory>> opened_;
};

std::string name_in_folder(const std::string& location) {
  return location.substr(location.find('/') + 1);
}

struct FileState {
  std::uint64_t bytes = 0;
  std::uint64_t changed = 0;
  uid_t owner = 0;
};

// Returns nullopt if there is no such regular file.
Result<std::optional<FileState>> file_state(const Directory& folder, const std::string& name) {
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  struct stat info {};
  if (::fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Result<std::optional<FileState>>(std::nullopt)
                           : fail(errno_error(errno, folder.child(name) + ": cannot examine"));
  }
  if (!S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return FileState{static_cast<std::uint64_t>(info.st_size),
                   static_cast<std::uint64_t>(info.st_mtim.tv_sec) * kNanoseconds +
                       static_cast<std::uint64_t>(info.st_mtim.tv_nsec),
                   info.st_uid};
}

Result<std::optional<FileState>> file_state(FoldersOf& folders, const std::string& location) {
  TRY_ASSIGN(const Directory* const folder, folders.folder_of(location));
  return folder != nullptr ? file_state(*folder, name_in_folder(location))
                           : Result<std::optional<FileState>>(std::nullopt);
}

// The tensors in each data file of the model, as its manifest lists them.
using TensorsOfFiles = std::map<std::string, std::vector<const ManifestTensor*>>;

TensorsOfFiles own_files(const Manifest& placed, const FileSet& in_use) {
  TensorsOfFiles files;
  for (const ManifestTensor& tensor : placed.tensors) {
    const std::string& file = tensor.file;
    const bool is_location = !file.empty() && file.find('/') == file.rfind('/');
    if (is_location && !placed.is_linked(file) && !in_use.contains(file)) {
      files[file].push_back(&tensor);
    }
  }
  return files;
}

// Other models of a set may also have data in the file.
bool has_size(const FileState& state, const std::vector<const ManifestTensor*>& tensors,
              bool is_of_set) {
  std::uint64_t end = 0;
  for (const ManifestTensor* tensor : tensors) {
    end = std::max(end, tensor->offset + tensor->length);
  }
  return is_of_set ? end <= state.bytes : end == state.bytes;
}

Result<bool> has_bytes(const Directory& folder, const std::string& name,
                       const std::vector<const ManifestTensor*>& tensors) {
  TRY_ASSIGN(const auto file, open_plain(folder, name));
  for (const ManifestTensor* tensor : tensors) {
    TRY_ASSIGN(const auto crc, range_crc32(*file, tensor->offset, tensor->length));
    if (tensor->crc32 != crc) {
      return false;
    }
  }
  return true;
}

// `files`: own_files() that the model refers to.
Result<ListedData> listed(FoldersOf& folders, const PlacedManifest& placed,
                          const TensorsOfFiles& files) {
  TRY_ASSIGN(const auto manifest, file_state(folders, placed.location));
  if (!manifest) {
    return fail(ErrorCode::kIo, placed.location + ": no longer exists");
  }
  ListedData data{{placed.location, manifest->bytes, manifest->changed}, {}};
  for (const auto& [location, tensors] : files) {
    TRY_ASSIGN(const auto state, file_state(folders, location));
    if (!state || !has_size(*state, tensors, !placed.manifest.set.empty())) {
      continue;
    }
    bool is_ours = state->changed <= manifest->changed;
    if (!is_ours) {
      TRY_ASSIGN(const Directory* const folder, folders.folder_of(location));
      TRY_ASSIGN(is_ours, has_bytes(*folder, name_in_folder(location), tensors));
    }
    if (is_ours) {
      data.files.push_back({location, state->bytes, state->changed});
    }
  }
  return data;
}

// Returns whether one of these models has no manifest of its own.
Result<bool> lacks_manifest(const Directory& out, const std::set<std::string>& models) {
  for (const std::string& name : models) {
    TRY_ASSIGN(const auto model, read_identity(out, name));
    TRY_ASSIGN(const auto manifests, find_manifests(out, name, model));
    if (manifests.empty()) {
      return true;
    }
  }
  return false;
}

// False when the file is still there and should have been removed.
bool remove_listed(FoldersOf& folders, const ListedFile& file, uid_t owner) {
  const auto folder = folders.folder_of(file.location);
  if (!folder || *folder == nullptr) {
    return folder.has_value();
  }
  const std::string name = name_in_folder(file.location);
  const auto state = file_state(**folder, name);
  if (!state || !*state) {
    return state.has_value();
  }
  const bool is_listed = (*state)->bytes == file.bytes && (*state)->changed == file.changed &&
                         (owner == ::geteuid() || (*state)->owner == owner);
  return !is_listed || (*folder)->remove_file(name);
}

}  // namespace

Result<ListedFile> list_file(const Directory& folder, const std::string& name,
                             std::string location) {
  TRY_ASSIGN(const auto state, file_state(folder, name));
  return state ? Result<ListedFile>(ListedFile{std::move(location), state->bytes, state->changed})
               : fail(ErrorCode::kIo, folder.child(name) + ": no longer exists");
}

Result<std::vector<ListedData>> list_data_of(const Directory& out, const std::string& model_name,
                                             const ModelIdentity& model, const FileSet& in_use) {
  TRY_ASSIGN(const auto manifests, find_manifests(out, model_name, model));
  FoldersOf folders(out);
  std::vector<ListedData> data;
  for (const PlacedManifest& placed : manifests) {
    TensorsOfFiles files = own_files(placed.manifest, in_use);
    const auto used = files.empty() ? FileSet() : files_of_model(out, model_name);
    if (!used) {
      return fail(ErrorCode::kIo, out.child(model_name) + ": cannot be read");
    }
    std::erase_if(files, [&](const auto& file) { return !used->contains(file.first); });
    TRY_ASSIGN(data.emplace_back(), listed(folders, placed, files));
  }
  return data;
}

RemovedData remove_data(const Directory& out, std::span<const ListedData> data, uid_t owner,
                        const std::optional<FilesInUse>& in_use) {
  RemovedData removed{in_use || data.empty(), {}};
  FoldersOf folders(out);
  for (std::size_t i = 0; in_use && i < data.size(); ++i) {
    std::set<std::string> users;  // of files that stay
    for (const ListedFile& file : data[i].files) {
      if (const auto user = in_use->find(file.location); user != in_use->end()) {
        removed.left_for.emplace_back(file.location, user->second);
        users.insert(user->second);
      }
    }
    const auto is_needed = lacks_manifest(out, users);
    bool gone = is_needed.has_value();
    for (std::size_t j = 0; is_needed && j < data[i].files.size(); ++j) {
      const ListedFile& file = data[i].files[j];
      gone = (in_use->contains(file.location) || remove_listed(folders, file, owner)) && gone;
    }
    if (gone && !*is_needed) {
      gone = remove_listed(folders, data[i].manifest, owner);
    }
    removed.all_gone = removed.all_gone && gone;
  }
  folders.remove_empty();
  return removed;
}

}  // namespace onnx_external
