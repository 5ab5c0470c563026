#include <algorithm>
#include <array>
#include <span>
#include <system_error>
#include <utility>

#include "base/name_map.h"
#include "base/remedy.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/formats/shard_index.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/expansion_limit.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxListedFiles = 20;

// The files that a folder may hold; the first that exists is its checkpoint.
constexpr std::array<std::string_view, 4> kFolderFiles = {
    "model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json",
    "pytorch_model.bin"};

Result<FileContents> read_file_or_index(std::shared_ptr<const SourceFile> file,
                                        const OpenOptions& options) {
  TRY_ASSIGN(const auto format, sniff_format(*file));
  return format == FileFormat::kJson ? read_shard_index(*file, options)
                                     : read_checkpoint_file(std::move(file), options);
}

bool is_checkpoint_format(FileFormat format, std::string_view name) {
  switch (format) {
    case FileFormat::kTorchZip:
    case FileFormat::kSafetensors:
    case FileFormat::kTorchLegacy:
      return true;
    case FileFormat::kJson:
      return name.ends_with(".index.json");
    default:
      return false;
  }
}

// The sorted names of the files in a folder whose content is a checkpoint; if there is none, a file
// that was not fetched, if there is one.
Result<std::vector<std::string>> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::vector<std::string> pointers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto file = open_shard(folder, name);
    const auto format = file ? sniff_format(**file) : Result<FileFormat>(FileFormat::kUnknown);
    if (format && is_checkpoint_format(*format, name)) {
      names.push_back(name);
    } else if (format && *format == FileFormat::kLfsPointer) {
      pointers.push_back(name);
    }
  }
  if (error) {
    return fail(ErrorCode::kIo, folder.string() + ": cannot list the folder: " + error.message());
  }
  std::sort(names.begin(), names.end());
  if (names.empty() && !pointers.empty()) {
    return std::vector{*std::min_element(pointers.begin(), pointers.end())};
  }
  return names;
}

Result<FileContents> read_folder(const std::filesystem::path& folder, const OpenOptions& options) {
  std::error_code ignored;
  for (const std::string_view name : kFolderFiles) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(folder / name, ignored))) {
      continue;
    }
    TRY_ASSIGN(auto file, open_shard(folder, name));
    return read_file_or_index(std::move(file), options);
  }
  if (std::filesystem::exists(
          std::filesystem::symlink_status(folder / kDcpMetadataName, ignored))) {
    TRY_ASSIGN(auto metadata, open_shard(folder, kDcpMetadataName));
    return read_dcp(std::move(metadata), options);
  }
  TRY_ASSIGN(const auto names, list_checkpoints(folder));
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name.ends_with(kDcpSuffix); })) {
    return fail(ErrorCode::kNotFound, folder.string() +
                                          ": a distributed checkpoint (DCP) without its file "
                                          "'.metadata'; was it saved or copied to its end?");
  }
  if (names.empty()) {
    return fail(ErrorCode::kNotFound, folder.string() + ": no checkpoint file in this folder");
  }
  if (names.size() > 1) {
    return fail(ErrorCode::kAmbiguous, folder.string() + ": several checkpoint files: " +
                                           quote_list(names, kMaxListedFiles) +
                                           "; name the ones to read");
  }
  TRY_ASSIGN(auto file, open_shard(folder, names.front()));
  return read_file_or_index(std::move(file), options);
}

Result<FileContents> read_argument(const std::filesystem::path& path, const OpenOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return read_folder(path, options);
  }
  if (path.filename().string().ends_with(kDcpSuffix)) {
    return fail(ErrorCode::kUnsupported,
                path.string() + ": a part of a distributed checkpoint (DCP); name its folder");
  }
  TRY_ASSIGN(auto file, SourceFile::open(path));
  return path.filename() == kDcpMetadataName ? read_dcp(std::move(file), options)
                                             : read_file_or_index(std::move(file), options);
}

// The contiguous bytes of all tensors, or of each once that several share.
Result<std::uint64_t> output_bytes(const FileContents& all, bool each_once) {
  BytesIds ids(all.storages);
  std::uint64_t total = 0;
  for (const TensorView& view : all.tensors) {
    TRY_ASSIGN(const auto nbytes, contiguous_nbytes(view.dtype, view.shape));
    const std::size_t known = ids.count();
    if (each_once && ids.id_of(view) < known) {  // nothing, which an empty tensor has, is less
      continue;
    }
    if (__builtin_add_overflow(total, nbytes, &total)) {
      return fail(ErrorCode::kCorrupt, "the tensors have more than 2^64 bytes");
    }
  }
  return total;
}

// A small file can be viewed as an output of any size, by a stride of 0 or many overlapping views.
Status check_expansion(const FileContents& all, std::uint64_t max_expand,
                       const std::string& where) {
  // Counts bytes of the files, not of inflated records, which can be made at a thousandth of their
  // size.
  std::uint64_t files = 0;
  for (const auto& file : all.files) {
    files += file->size();
  }
  const auto is_too_much = [&](std::uint64_t bytes) {
    return expands_too_far(bytes, files, max_expand);
  };
  auto total = output_bytes(all, false);
  if (!total || is_too_much(*total)) {  // rare, and takes more work
    total = output_bytes(all, true);
  }
  if (!total) {
    return fail_in(where, total.error());
  }
  if (is_too_much(*total)) {
    return fail_with(ErrorCode::kUnsupported,
                     where + ": the tensors have " + size_text(*total) + ", expanded from " +
                         size_text(files) + "; at most " + std::to_string(max_expand) +
                         " times is allowed",
                     {{"max-expand", "N", "if the file is trusted to grow N times"}});
  }
  return {};
}

// Drops the tensors whose name also occurs in a later argument.
void drop_overlaid(CheckpointAccess::Contents& contents) {
  std::vector<TensorView>& tensors = contents.all.tensors;
  std::vector<bool> stays(tensors.size(), true);
  {
    NameMap<std::uint32_t> last;  // the last argument that has the name
    for (std::size_t i = tensors.size(); i-- > 0;) {
      const auto [found, is_new] = last.emplace(tensors[i].name, contents.arguments[i]);
      stays[i] = is_new;
      if (!is_new) {
        contents.overlaid.push_back({tensors[i].name, contents.arguments[i], found->second});
      }
    }
  }
  std::reverse(contents.overlaid.begin(), contents.overlaid.end());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (stays[i]) {
      std::swap(tensors[kept], tensors[i]);
      std::swap(contents.arguments[kept++], contents.arguments[i]);
    }
  }
  tensors.resize(kept);
  contents.arguments.resize(kept);
}

// Within one argument names are unique already.
Status check_names(CheckpointAccess::Contents& contents,
                   std::span<const std::filesystem::path> paths, bool overlay) {
  if (paths.size() == 1) {
    return {};
  }
  if (overlay) {
    drop_overlaid(contents);
    return {};
  }
  NameMap<std::uint32_t> argument_of;
  for (std::size_t i = 0; i < contents.all.tensors.size(); ++i) {
    const std::string& name = contents.all.tensors[i].name;
    const std::uint32_t argument = contents.arguments[i];
    const auto [twin, is_new] = argument_of.emplace(name, argument);
    if (!is_new) {
      return fail_with(ErrorCode::kAmbiguous,
                       "tensor " + quote(name) + " is in " + quote(paths[twin->second].string()) +
                           " and in " + quote(paths[argument].string()) + "; give only one of them",
                       {{"overlay", "", "takes the tensors of the later one"}});
    }
  }
  return {};
}

}  // namespace

Result<Checkpoint> open_checkpoint(std::span<const std::filesystem::path> paths,
                                   const OpenOptions& options) {
  if (paths.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no checkpoint is named");
  }
  auto contents = std::make_unique<CheckpointAccess::Contents>(options.scratch_dir);
  for (std::uint32_t argument = 0; argument < paths.size(); ++argument) {
    TRY_ASSIGN(auto part, read_argument(paths[argument], options));
    std::string& format = contents->all.format;
    format = argument == 0 || format == part.format ? part.format : "mixed";
    append_contents(contents->all, std::move(part));
    contents->arguments.resize(contents->all.tensors.size(), argument);
    TRY_IN(paths[argument].string(), MemoryBudget(contents->all, options.max_expand).check());
  }
  TRY(check_names(*contents, paths, options.overlay));
  TRY(check_expansion(contents->all, options.max_expand, paths[0].string()));
  return CheckpointAccess::make(std::move(contents));
}

}  // namespace onnx_external
