#include "save/streamed_files.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "base/try.h"
#include "onnx/graph_facts.h"
#include "save/file_names.h"
#include "save/layout.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMaxUnsyncedStreams = 64;

// No model can have this name, because check_output_names() rejects the prefix.
std::string staged_shard_name(std::size_t number) {
  return fmt::format(".save-external.{:05}.data", number);
}

}  // namespace

Result<AddedTensor> AddedTensor::of(ProvidedTensor given) {
  std::vector<ProvidedTensor> tensors;
  tensors.push_back(std::move(given));
  TRY_ASSIGN(auto checkpoint, checkpoint_of(std::move(tensors)));
  const TensorView& view = checkpoint.tensors().front();
  PlannedTensor tensor;
  tensor.name = view.name;
  tensor.data_type = onnx_data_type(view.dtype);
  tensor.nbytes = checkpoint.nbytes(0);
  auto dims = onnx_shape(view.dtype, view.shape);
  if (tensor.data_type == 0 || !dims) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("tensor {}: ONNX has no type for {} of shape {}", quote(view.name),
                            torch_name(view.dtype), shape_text(view.shape)));
  }
  tensor.dims = *std::move(dims);
  SavePlan plan;
  plan.ranges.push_back({.bytes = tensor.nbytes});
  plan.tensors.push_back(std::move(tensor));
  return AddedTensor{std::move(checkpoint), std::move(plan)};
}

bool AddedTensor::is_inline() const {
  return bytes() == 0 || (!onnx_is_floating(tensor().data_type) && tensor().dims.size() <= 1 &&
                          bytes() <= kMaxInlineIntegerBytes);
}

onnx::TensorProto AddedTensor::initializer() const {
  onnx::TensorProto proto;
  proto.set_name(name());
  proto.set_data_type(tensor().data_type);
  proto.mutable_dims()->Add(tensor().dims.begin(), tensor().dims.end());
  return proto;
}

Result<std::string> AddedTensor::read() const {
  std::string raw(static_cast<std::size_t>(bytes()), '\0');
  TRY_ASSIGN(const auto held, hold_planned(checkpoint, tensor()));
  TRY(checkpoint.read(0, 0, std::as_writable_bytes(std::span(raw))));
  return raw;
}

StreamedFiles::StreamedFiles(const Transaction& transaction, PlanOptions layout)
    : transaction_(transaction),
      layout_(std::move(layout)),
      syncer_(transaction.options().sync, 0, kMaxUnsyncedStreams) {}

Result<StreamedRange> StreamedFiles::take(std::string_view tensor, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::optional<std::uint64_t> offset;
  if (!has_own_files() && !files_.empty()) {
    TRY_ASSIGN(offset, offset_behind(files_.back().bytes, bytes, layout_));
  }
  if (!offset) {
    TRY(add_file(tensor));
  }
  File& file = files_.back();
  file.bytes = offset.value_or(0) + bytes;
  file.is_full = has_own_files();
  ++file.writers;
  return StreamedRange{files_.size() - 1, offset.value_or(0)};
}

Status StreamedFiles::add_file(std::string_view tensor) {
  if (!has_own_files() && files_.size() == kMaxShards) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("more than {} shards; choose a larger shard size", kMaxShards));
  }
  if (!files_.empty() && !files_.back().is_full) {
    files_.back().is_full = true;
    TRY(files_.back().writers == 0 ? close(files_.back()) : Status());
  }
  File& file = files_.emplace_back();
  file.name = has_own_files()                     ? streamed_file_name(tensor)
              : layout_.layout == Layout::kShards ? staged_shard_name(files_.size())
                                                  : single_file_name(data_name(), data_dir());
  return {};
}

Result<const OutputFile*> StreamedFiles::open(const StreamedRange& place, std::uint64_t bytes) {
  File* file = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    file = &files_[place.file];
  }
  TRY_ASSIGN(OutputFile* const output,
             file->data.open([&] { return OutputFile::create(transaction_.data(), file->name); }));
  TRY(bytes >= kMinPreallocatedBytes ? output->preallocate(place.offset + bytes) : Status());
  return output;
}

Status StreamedFiles::release(const StreamedRange& place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  File& file = files_[place.file];
  return --file.writers == 0 && file.is_full ? close(file) : Status();
}

// Requires: no writer is left.
Status StreamedFiles::close(File& file) {
  auto output = file.data.take();
  return output ? syncer_.close(*std::move(output), file.bytes) : Status();
}

void StreamedFiles::drop(const StreamedRange& place) {
  if (has_own_files()) {
    (void)transaction_.data().remove_file(name(place.file));
  }
}

std::string StreamedFiles::location(std::size_t file) const {
  return has_own_files() ? data_dir() + "/" + name(file) : name(file);
}

std::string StreamedFiles::name(std::size_t file) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return files_[file].name;
}

std::uint64_t StreamedFiles::bytes(std::size_t file) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return files_[file].bytes;
}

DataName StreamedFiles::data_name() const {
  return data_name_of(transaction_.options().models.front(), layout_.data_name);
}

Status StreamedFiles::finish(int threads, ProgressMeter& meter) {
  std::uint64_t bytes = 0;
  for (File& file : files_) {
    TRY(close(file));
    bytes += file.bytes;
  }
  return syncer_.finish(transaction_.data(), bytes, threads, meter);
}

Status StreamedFiles::name_shards(std::vector<PlannedFile>& files) const {
  for (std::size_t i = 0; layout_.layout == Layout::kShards && i < files.size(); ++i) {
    std::string name = shard_file_name(data_name(), data_dir(), i + 1, files.size());
    TRY(rename_entry(transaction_.data(), files[i].name, transaction_.data(), name, Replace::kNo));
    files[i].name = std::move(name);
  }
  return {};
}

}  // namespace onnx_external
