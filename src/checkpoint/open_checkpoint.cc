#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "base/foreign_format.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/adapter_merge.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/folder_file.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/formats/foreign_folder.h"
#include "checkpoint/formats/shard_index.h"
#include "checkpoint/formats/training_files.h"
#include "checkpoint/gguf/gguf_adapter.h"
#include "checkpoint/gguf/gguf_checkpoint.h"
#include "checkpoint/gguf/gguf_parts.h"
#include "checkpoint/missing_tensors.h"
#include "checkpoint/names_of_arguments.h"
#include "checkpoint/quantized/quant_settings.h"
#include "checkpoint/quantized/quantized_tensors.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/expansion_limit.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxListedFiles = 20;

// The shards of an index are in `folder`.
Result<FileContents> read_file_or_index(std::shared_ptr<const SourceFile> file,
                                        const std::filesystem::path& folder,
                                        const OpenOptions& options) {
  TRY_ASSIGN(const auto format, sniff_format(*file));
  if (format == FileFormat::kGguf) {
    return read_gguf(std::move(file), options);
  }
  return format == FileFormat::kJson ? read_shard_index(*file, folder, options)
                                     : read_checkpoint_file(std::move(file), options);
}

bool is_checkpoint_format(FileFormat format, std::string_view name) {
  switch (format) {
    case FileFormat::kTorchZip:
    case FileFormat::kSafetensors:
    case FileFormat::kTorchLegacy:
    case FileFormat::kGguf:
      return true;
    case FileFormat::kJson:
      return name.ends_with(".index.json");
    default:
      return false;
  }
}

// Distinguishes pointers, and weights in other formats, from the texts and images next to a model.
bool stands_for_weights(const SourceFile& file) {
  constexpr std::array kEnds = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"};
  const auto head = head_of(file);
  const auto found = head ? foreign_format(*head) : std::nullopt;
  const std::string end = file.path().extension().string();
  return found &&
         (found->kind == ForeignKind::kPacked || found->kind == ForeignKind::kPointer ||
          found->kind == ForeignKind::kWeights || found->kind == ForeignKind::kCheckpoint ||
          std::find(kEnds.begin(), kEnds.end(), end) != kEnds.end());
}

// The sorted names of the files in a folder whose content is a checkpoint, without those of a
// training's state; if there is none, a file that was not fetched, or is packed, or of another
// format, if there is one.
Result<std::vector<std::string>> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::vector<std::string> pointers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_training_state(name)) {
      continue;
    }
    const auto file = open_shard(folder, name);
    const auto format = file ? sniff_format(**file) : Result<FileFormat>(FileFormat::kUnknown);
    if (format && is_checkpoint_format(*format, name)) {
      names.push_back(name);
    } else if (format && *format == FileFormat::kForeign && stands_for_weights(**file)) {
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

// Leaves out the later files of models in several GGUF files, and the encoders next to a GGUF
// model.
void drop_gguf_parts(std::vector<std::string>& names) {
  const std::vector<std::string> all = names;
  const auto is_there = [&](const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  std::erase_if(names, [&](const std::string& name) {
    const std::string first = first_gguf_part(name);
    return first != name && is_there(first);
  });
  const auto is_encoder = [](const std::string& name) {
    return name.starts_with("mmproj") && name.ends_with(".gguf");
  };
  if (!std::all_of(names.begin(), names.end(), is_encoder)) {
    std::erase_if(names, is_encoder);
  }
}

std::string parts_in(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& name : names) {
    paths.push_back(folder / name);
  }
  return rank_parts(paths);
}

Result<FileContents> read_folder(const std::filesystem::path& folder, const OpenOptions& options) {
  TRY_ASSIGN(auto usual, transformers_file(folder, options.variant));
  if (usual) {
    TRY_ASSIGN(auto contents, read_file_or_index(std::move(usual->file), folder, options));
    if (!usual->note.empty()) {
      contents.notes.insert(contents.notes.begin(), std::move(usual->note));
    }
    return contents;
  }
  std::error_code ignored;
  if (std::filesystem::exists(
          std::filesystem::symlink_status(folder / kDcpMetadataName, ignored))) {
    TRY_ASSIGN(auto metadata, open_shard(folder, kDcpMetadataName));
    return read_dcp(std::move(metadata), options);
  }
  TRY_ASSIGN(auto names, list_checkpoints(folder));
  drop_gguf_parts(names);
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name.ends_with(kDcpSuffix); })) {
    return fail(ErrorCode::kNotFound, folder.string() +
                                          ": a distributed checkpoint (DCP) without its file "
                                          "'.metadata'; was it saved or copied completely?");
  }
  if (names.empty()) {
    const std::string why = why_no_checkpoint(folder);
    return fail(ErrorCode::kNotFound, folder.string() + ": no checkpoint file in this folder" +
                                          (why.empty() ? "" : "; " + why));
  }
  if (const std::string parts = parts_in(folder, names); !parts.empty()) {
    return fail(ErrorCode::kUnsupported, folder.string() + ": " + parts);
  }
  if (names.size() > 1) {
    return fail(ErrorCode::kAmbiguous, folder.string() + ": several checkpoint files: " +
                                           quote_list(names, kMaxListedFiles) +
                                           "; pass the files to read");
  }
  TRY(first_gguf_part(names.front()).empty() ? check_is_whole(folder, names.front()) : Status());
  TRY_ASSIGN(auto file, open_shard(folder, names.front()));
  return read_file_or_index(std::move(file), folder, options);
}

Result<FileContents> read_argument(const std::filesystem::path& path, const OpenOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return read_folder(path, options);
  }
  if (path.filename().string().ends_with(kDcpSuffix)) {
    return fail(ErrorCode::kUnsupported,
                path.string() + ": a part of a distributed checkpoint (DCP); pass its folder");
  }
  TRY_ASSIGN(auto file, SourceFile::open(path));
  return path.filename() == kDcpMetadataName
             ? read_dcp(std::move(file), options)
             : read_file_or_index(std::move(file), path.parent_path(), options);
}

// Lists the quantized weights of an argument, whose tensors are the last ones, as floats.
Status list_floats(const std::filesystem::path& path, std::size_t first, const OpenOptions& options,
                   CheckpointAccess::Contents& contents) {
  if (options.stored_parts || options.selection == Selection::kRecordedInputs ||
      (!may_be_quantized(contents.all, first) && contents.all.declared_weights.empty())) {
    return {};
  }
  // The readers allocate memory for some parts.
  TRY(check_tensor_expansion(contents.all, options.max_expand, path.string()));
  std::error_code ignored;
  QuantSettings settings;
  if (std::filesystem::is_directory(path, ignored)) {
    auto found = read_quant_settings(path);
    if (!found && options.selection == Selection::kEverything) {
      return {};
    }
    TRY_ASSIGN(settings, std::move(found));
  }
  Status status = list_quantized_as_floats(contents.all, first, contents.inflated, settings);
  const bool lists_parts = !status && options.selection == Selection::kEverything &&
                           status.error().code != ErrorCode::kIo;
  return status || lists_parts ? Status() : fail_in(path.string(), std::move(status).error());
}

Status check_variant(std::span<const std::filesystem::path> paths, const std::string& variant) {
  const auto is_folder = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
  };
  if (!variant.empty() && std::none_of(paths.begin(), paths.end(), is_folder)) {
    return fail(ErrorCode::kInvalidArgument,
                paths[0].string() + ": is not a folder, so the variant " + quote(variant) +
                    " cannot be used; leave it out, or pass the folder");
  }
  return {};
}

}  // namespace

Result<Checkpoint> open_checkpoint(std::span<const std::filesystem::path> paths,
                                   const OpenOptions& options) {
  if (paths.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no checkpoint was given");
  }
  TRY(check_variant(paths, options.variant));
  auto contents = std::make_unique<CheckpointAccess::Contents>(options.scratch_dir);
  for (std::uint32_t argument = 0; argument < paths.size(); ++argument) {
    if (const auto adapter = adapter_folder(paths[argument]); adapter && argument > 0) {
      TRY(merge_adapter(*adapter, paths[0], options, *contents));
      continue;
    }
    if (argument > 0 && is_gguf_adapter(paths[argument])) {
      TRY(merge_gguf_adapter(paths[argument], paths[0], *contents));
      continue;
    }
    TRY_ASSIGN(auto part, read_argument(paths[argument], options));
    std::string& format = contents->all.format;
    format = argument == 0 || format == part.format ? part.format : "mixed";
    const std::size_t first = contents->all.tensors.size();
    append_contents(contents->all, std::move(part));
    TRY(list_floats(paths[argument], first, options, *contents));
    contents->arguments.resize(contents->all.tensors.size(), argument);
    TRY_IN(paths[argument].string(), MemoryBudget(contents->all, options.max_expand).check());
  }
  std::vector<std::string> arguments;
  for (const std::filesystem::path& path : paths) {
    arguments.push_back(quote(path.string()));
  }
  if (Status own = check_names(*contents, arguments, options.overlay); !own) {
    const std::string parts = rank_parts(paths);
    return parts.empty() ? fail(std::move(own).error()) : fail(ErrorCode::kUnsupported, parts);
  }
  TRY(check_files(contents->all));
  TRY(check_tensor_expansion(contents->all, options.max_expand, paths[0].string()));
  return CheckpointAccess::make(std::move(contents));
}

}  // namespace onnx_external
