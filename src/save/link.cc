#include "save/link.h"

#include <fmt/format.h>

#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/remedy.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "save/layout.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCopyInstead = "; use a layout that copies";

tl::unexpected<Error> not_linked(ErrorCode code, std::string message) {
  return fail(of_kind(ErrorKind::kNotLinked, {code, std::move(message)}));
}

// Returns the reason why the bytes of a tensor are not a plain range of its file.
std::string_view obstacle(const TensorView& view, const Storage& storage, const Recipe& recipe) {
  if (storage.kind != StorageKind::kFile) {
    return storage.kind == StorageKind::kMemory ? "its bytes are in memory, not in a file"
                                                : "its bytes are computed, not in a file";
  }
  if (storage.computed) {
    return "its values are assembled from several places, or converted";
  }
  if (storage.compression != Compression::kNone) {
    return "its record is compressed";
  }
  if (view.conj || view.neg) {
    return "it is a conjugated or negated view";
  }
  if (!is_contiguous(view.shape, view.strides)) {
    return recipe.empty()       ? "its elements are not in row-major order"
           : transposes(recipe) ? "it is transposed"
                                : "its recipe reorders its elements";
  }
  return "its bytes are big-endian";
}

// Returns the number of bytes that a processor loads at once; an offset must be a multiple of it.
std::uint64_t natural_alignment(std::int32_t data_type) {
  const auto dtype = dtype_from_onnx(data_type);
  return dtype ? swap_unit(*dtype) : 1;
}

Status misaligned(std::string where, std::uint64_t offset, std::int32_t data_type) {
  return not_linked(ErrorCode::kUnsupported,
                    fmt::format("{}: begins at byte {}, but runtimes map such files into memory, "
                                "which requires {} elements to begin at a multiple of {} bytes{}",
                                where, offset, onnx_type_name(data_type),
                                natural_alignment(data_type), kCopyInstead));
}

// The error for a file that no location can refer to; it says what to do. Paths are shown as the
// caller wrote them.
tl::unexpected<Error> outside(const fs::path& path, const fs::path& out_dir) {
  std::error_code no_link;
  const fs::path link = fs::read_symlink(path, no_link);
  const fs::path target = no_link ? path : (path.parent_path() / link).lexically_normal();
  const fs::path home = target.has_parent_path() ? target.parent_path() : fs::path(".");
  return not_linked(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: {}is outside the output folder {}, but the data of a model must be inside "
                  "it; save to {}, or use a layout that copies",
                  path.string(),
                  no_link ? "" : "is a symbolic link to " + quote(target.string()) + ", which ",
                  quote(out_dir.string()), quote(home.string())));
}

// Returns the location of the file in a model in `out_dir`.
Result<std::string> location_of(const SourceFile& file, const fs::path& out_dir) {
  std::error_code no_target;
  std::error_code no_folder;
  const fs::path target = fs::canonical(file.path(), no_target);
  const fs::path folder = fs::canonical(out_dir.empty() ? fs::path(".") : out_dir, no_folder);
  if (no_target) {
    return fail(errno_error(no_target.value(), file.name() + ": cannot determine its path"));
  }
  const fs::path relative = no_folder ? fs::path() : target.lexically_relative(folder);
  if (relative.empty() || *relative.begin() == "..") {
    return outside(file.path(), out_dir);
  }
  std::string location = relative.generic_string();
  if (!is_utf8(location)) {
    return fail(
        ErrorCode::kInvalidArgument,
        quote(location) + ": not UTF-8, but a location in a model has to be UTF-8; rename it");
  }
  const auto opened = open_beneath(out_dir, location);
  if (!opened) {
    return not_linked(opened.error().code, opened.error().message + std::string(kCopyInstead));
  }
  if (!(*opened)->same_file(file) || (*opened)->size() != file.size()) {
    return fail(ErrorCode::kCorrupt,
                file.name() + ": was replaced while it was being read; try again");
  }
  return location;
}

// Returns the file that contains a range with that source.
Result<std::shared_ptr<const SourceFile>> file_of(const PlannedTensor& tensor,
                                                  const SourceModels& models,
                                                  const Checkpoint& checkpoint) {
  if (tensor.source == TensorSource::kCheckpoint) {
    const TensorView& view = checkpoint.tensors()[tensor.source_index];
    return CheckpointAccess::files(checkpoint)[checkpoint.storages()[view.storage].file];
  }
  const Model& model = models.of(tensor);
  const ExternalTensor& external = model.external_tensors()[tensor.source_index];
  auto file = open_beneath(model.source_dir(), external.location);
  return file ? file : fail_in("initializer " + quote(tensor.name), std::move(file).error());
}

}  // namespace

std::uint32_t LinkedRanges::add_file(std::uint64_t bytes) {
  plan_.files.push_back({.name = "", .bytes = bytes, .is_linked = true});
  return static_cast<std::uint32_t>(plan_.files.size() - 1);
}

Status LinkedRanges::locate_in_checkpoint(const PlannedTensor& tensor, DataRange& range) {
  const DerivedView derived = planned_view(checkpoint_, tensor);
  const TensorView& view = *derived;
  const Storage& storage = checkpoint_.storages()[view.storage];
  const SourceFile& file = *CheckpointAccess::files(checkpoint_)[storage.file];
  const bool in_file = storage.kind == StorageKind::kFile;
  const std::string where = (in_file ? file.name() + ": " : "") + "tensor " + quote(view.name);
  const auto source = linked_range(checkpoint_, tensor);
  if (!source || !in_file) {
    const std::string_view why =
        tensor.cast_to ? "its values have to be converted" : obstacle(view, storage, tensor.recipe);
    return not_linked(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}, so no model can refer to them in place{}", where, why, kCopyInstead));
  }
  if (source->offset % natural_alignment(tensor.data_type) != 0) {
    return misaligned(where, source->offset, tensor.data_type);
  }
  const auto known = by_checkpoint_file_.find(source->file);
  range.file = known != by_checkpoint_file_.end()
                   ? known->second
                   : by_checkpoint_file_.emplace(source->file, add_file(file.size())).first->second;
  range.offset = source->offset;
  return {};
}

Status LinkedRanges::place(const PlannedTensor& tensor, DataRange& range) {
  if (tensor.source == TensorSource::kCheckpoint) {
    return locate_in_checkpoint(tensor, range);
  }
  const ExternalTensor& external = models_.of(tensor).external_tensors()[tensor.source_index];
  if (external.offset % natural_alignment(external.data_type) != 0) {
    return misaligned("initializer " + quote(tensor.name), external.offset, external.data_type);
  }
  std::pair place(models_.of(tensor).source_dir().string(), external.location);
  const auto known = by_location_.find(place);
  range.file = known != by_location_.end()
                   ? known->second
                   : by_location_.emplace(std::move(place), add_file(0)).first->second;
  range.offset = external.offset;
  return {};
}

Result<SavePlan> link_or_write(SavePlan plan, const SourceModels& models,
                               const Checkpoint& checkpoint, const PlanOptions& options) {
  SavePlan none;
  LinkedRanges try_linked(models, checkpoint, none);
  std::vector<bool> is_written(plan.ranges.size());
  for (const PlannedTensor& tensor : plan.tensors) {
    DataRange anywhere;
    if (tensor.range && !try_linked.place(tensor, anywhere)) {
      is_written[*tensor.range] = true;
    }
  }
  SavePlan written;
  written.models = plan.models;
  written.data_dir = plan.data_dir;
  written.data_name = plan.data_name;
  std::vector<std::uint32_t> numbers(plan.ranges.size());
  for (std::size_t i = 0; i < plan.ranges.size(); ++i) {
    if (is_written[i]) {
      numbers[i] = static_cast<std::uint32_t>(written.ranges.size());
      written.ranges.push_back(plan.ranges[i]);
    }
  }
  PlanOptions single = options;
  single.layout = Layout::kSingle;
  TRY(lay_out(written, single));
  plan.bytes = written.bytes;
  plan.files = std::move(written.files);
  LinkedRanges linked(models, checkpoint, plan);
  for (std::size_t i = 0; i < plan.ranges.size(); ++i) {
    if (!is_written[i]) {
      DataRange range = plan.ranges[i];
      TRY(linked.place(plan.tensors[range.source_tensor], range));
      numbers[i] = static_cast<std::uint32_t>(written.ranges.size());
      written.ranges.push_back(range);
    }
  }
  plan.ranges = std::move(written.ranges);
  for (PlannedTensor& tensor : plan.tensors) {
    if (tensor.range) {
      tensor.range = numbers[*tensor.range];
    }
  }
  return plan;
}

Result<SavePlan> link_files(SavePlan plan, const SourceModels& models, const Checkpoint& checkpoint,
                            const fs::path& out_dir) {
  for (std::size_t i = plan.written_ranges(); i < plan.ranges.size(); ++i) {
    const DataRange& range = plan.ranges[i];
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    PlannedFile& planned = plan.files[range.file];
    if (planned.name.empty()) {
      TRY_ASSIGN(const auto file, file_of(tensor, models, checkpoint));
      TRY_ASSIGN(auto location, location_of(*file, out_dir));
      planned.name = std::move(location);
      planned.bytes = file->size();
    }
    if (!range_fits(range.offset, range.bytes, planned.bytes)) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("initializer {}: {}: {} bytes at {} do not fit into the {} bytes of "
                              "the file",
                              quote(tensor.name), quote(planned.name), range.bytes, range.offset,
                              planned.bytes));
    }
  }
  return plan;
}

}  // namespace onnx_external
