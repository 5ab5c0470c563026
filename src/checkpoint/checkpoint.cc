#include "onnx_external/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/checked_math.h"
#include "base/io_buffer.h"
#include "base/read_back.h"
#include "base/try.h"
#include "checkpoint/quantized/quantized_tensors.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/element_reader.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/storage/view_source.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

// Bytes that are read before they are converted; a plain range of this size stays in the L2 cache.
constexpr std::uint64_t kPlainCastBytes = std::uint64_t{128} << 10;
constexpr std::uint64_t kGatherCastBytes = std::uint64_t{1} << 20;

// Indices in `part` move up by what `whole` already has.
template <typename T>
void append(std::vector<T>& whole, std::vector<T>&& part) {
  whole.insert(whole.end(), std::make_move_iterator(part.begin()),
               std::make_move_iterator(part.end()));
}

void keep_agreed(FormatFacts& whole, const FormatFacts& part) {
  if (whole.version != part.version) {
    whole.version.clear();
  }
  if (whole.pickle_protocol != part.pickle_protocol) {
    whole.pickle_protocol.reset();
  }
}

}  // namespace

void append_contents(FileContents& whole, FileContents part) {
  if (whole.files.empty()) {
    whole.facts = std::move(part.facts);
  } else {
    keep_agreed(whole.facts, part.facts);
  }
  const auto files = static_cast<std::uint32_t>(whole.files.size());
  const auto storages = static_cast<std::uint32_t>(whole.storages.size());
  for (Storage& storage : part.storages) {
    storage.file += files;
  }
  for (TensorView& tensor : part.tensors) {
    tensor.storage += storages;
  }
  for (TensorView& tensor : part.stored) {
    tensor.storage += storages;
  }
  append(whole.stored, std::move(part.stored));
  append(whole.files, std::move(part.files));
  append(whole.storages, std::move(part.storages));
  append(whole.tensors, std::move(part.tensors));
  append(whole.opaque, std::move(part.opaque));
  append(whole.refused, std::move(part.refused));
  append(whole.tied_names, std::move(part.tied_names));
  append(whole.notes, std::move(part.notes));
  append(whole.metadata, std::move(part.metadata));
  append(whole.declared_weights, std::move(part.declared_weights));
  whole.kept_bytes += part.kept_bytes;
  for (auto& [storage, source] : part.computed) {
    whole.computed.emplace(storage + storages, std::move(source));
  }
  for (const auto& [storage, matrix] : part.quantized) {
    whole.quantized.emplace(storage + storages, storages == 0 ? matrix : behind(*matrix, storages));
  }
  for (auto& [storage, sources] : part.made_of) {
    for (std::uint32_t& source : sources) {
      source += storages;
    }
    whole.made_of.emplace(storage + storages, std::move(sources));
  }
}

Checkpoint::Checkpoint(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {
  for (const auto& file : contents_->all.files) {
    contents_->files.push_back({file->path(), file->size()});
  }
}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::format() const {
  return contents_->all.format;
}
const FormatFacts& Checkpoint::facts() const {
  return contents_->all.facts;
}
const std::vector<TensorView>& Checkpoint::tensors() const {
  return contents_->all.tensors;
}
const std::vector<Storage>& Checkpoint::storages() const {
  return contents_->all.storages;
}
const std::vector<CheckpointFile>& Checkpoint::files() const {
  return contents_->files;
}
const std::vector<OpaqueObject>& Checkpoint::opaque_objects() const {
  return contents_->all.opaque;
}
const std::vector<RefusedTensor>& Checkpoint::refused_tensors() const {
  return contents_->all.refused;
}
std::uint32_t Checkpoint::argument_of(std::size_t tensor) const {
  return contents_->arguments[tensor];
}
std::span<const std::uint32_t> Checkpoint::made_of(std::size_t tensor) const {
  const auto& keys = contents_->keys_of;
  return tensor < keys.size() ? std::span<const std::uint32_t>(keys[tensor])
                              : std::span<const std::uint32_t>();
}
const std::vector<OverlaidTensor>& Checkpoint::overlaid() const {
  return contents_->overlaid;
}
const std::vector<std::pair<std::string, std::string>>& Checkpoint::tied_names() const {
  return contents_->all.tied_names;
}
const std::vector<std::string>& Checkpoint::notes() const {
  return contents_->all.notes;
}

std::uint64_t Checkpoint::nbytes(std::size_t tensor) const {
  const TensorView& view = tensors()[tensor];
  return *contiguous_nbytes(view.dtype, view.shape);  // checked when it was opened
}

std::optional<FileRange> Checkpoint::plain_range(std::size_t tensor) const {
  return plain_range(tensors()[tensor]);
}

std::optional<FileRange> Checkpoint::plain_range(const TensorView& view) const {
  const Storage& storage = storages()[view.storage];
  if (storage.compression != Compression::kNone || storage.computed ||
      needs_swap(storage, view.dtype) || view.conj || view.neg ||
      !is_contiguous(view.shape, view.strides)) {
    return std::nullopt;
  }
  return FileRange{.file = storage.file,
                   .offset = storage.offset + view.storage_offset,
                   .length = *contiguous_nbytes(view.dtype, view.shape)};
}

Status Checkpoint::read(std::size_t tensor, std::uint64_t first, std::span<std::byte> out) const {
  return read(tensors()[tensor], first, out);
}

Status Checkpoint::read(const TensorView& view, std::uint64_t first,
                        std::span<std::byte> out) const {
  assert(range_fits(first, out.size(), *contiguous_nbytes(view.dtype, view.shape)));
  const StorageSource source = storage_source(contents_->all, view.storage);
  return out.empty() ? Status()
                     : with_reader(source, *contents_->inflated, view,
                                   [&](const auto& reader) { return reader.read(first, out); });
}

Status CheckpointAccess::read_rows(const Checkpoint& checkpoint, const TensorView& view,
                                   std::uint64_t pitch, std::span<std::byte> out,
                                   std::byte* scratch) {
  Contents& contents = *checkpoint.contents_;
  return with_reader(storage_source(contents.all, view.storage), *contents.inflated, view,
                     [&](const auto& reader) { return reader.read_rows(pitch, out, scratch); });
}

Status CheckpointAccess::read_word_rows(const Checkpoint& checkpoint, const TensorView& view,
                                        const WordRows& rows, std::span<std::byte> out,
                                        std::byte* scratch) {
  Contents& contents = *checkpoint.contents_;
  return with_reader(storage_source(contents.all, view.storage), *contents.inflated, view,
                     [&](const auto& reader) { return reader.read_word_rows(rows, out, scratch); });
}

Result<MemoryRuns::Held> CheckpointAccess::hold(const Checkpoint& checkpoint,
                                                const TensorView& view) {
  const Storage& storage = checkpoint.storages()[view.storage];
  return storage.kind == StorageKind::kMade
             ? files(checkpoint)[storage.file]->runs()->hold(storage.offset)
             : MemoryRuns::Held();
}

void CheckpointAccess::append_existing(Checkpoint& checkpoint, const Checkpoint& others) {
  Contents& contents = *checkpoint.contents_;
  contents.given += others.tensors().size();
  append_contents(contents.all, others.contents_->all);
  contents.arguments.resize(contents.all.tensors.size(), 0);
  contents.files.insert(contents.files.end(), others.files().begin(), others.files().end());
}

std::size_t CheckpointAccess::first_existing(const Checkpoint& checkpoint) {
  return checkpoint.tensors().size() - checkpoint.contents_->given;
}

Result<std::size_t> CheckpointAccess::given_tensor(const Checkpoint& checkpoint,
                                                   std::uint64_t number) {
  if (number >= checkpoint.contents_->given) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("it refers to tensor {} in memory, but {} tensors were passed", number,
                            checkpoint.contents_->given));
  }
  return first_existing(checkpoint) + static_cast<std::size_t>(number);
}

std::shared_ptr<const QuantizedMatrix> CheckpointAccess::quantized(const Checkpoint& checkpoint,
                                                                   std::uint32_t storage) {
  const auto& all = checkpoint.contents_->all.quantized;
  const auto found = all.find(storage);
  return found == all.end() ? nullptr : found->second;
}

const std::vector<std::shared_ptr<const SourceFile>>& CheckpointAccess::files(
    const Checkpoint& checkpoint) {
  return checkpoint.contents_->all.files;
}

Checkpoint CheckpointAccess::make(std::unique_ptr<Contents> contents) {
  return Checkpoint(std::move(contents));
}

Checkpoint CheckpointAccess::make_empty() {
  return make(std::make_unique<Contents>(std::filesystem::path()));
}

Status Checkpoint::read_as(std::size_t tensor, DType dtype, std::uint64_t first,
                           std::span<std::byte> out) const {
  return read_as(tensors()[tensor], dtype, first, out);
}

Status Checkpoint::read_as(const TensorView& view, DType dtype, std::uint64_t first,
                           std::span<std::byte> out) const {
  const DType from = view.dtype;
  if (from == dtype) {
    return read(view, first, out);
  }
  const std::uint64_t unit = byte_size(dtype);
  const std::uint64_t count = out.size() / unit;
  const std::uint64_t step =
      (plain_range(view) ? kPlainCastBytes : kGatherCastBytes) / byte_size(from);
  IoBuffer buffer;
  for (std::uint64_t done = 0; done < count; done += step) {
    const std::uint64_t elements = std::min(step, count - done);
    const auto chunk = buffer.first(elements * byte_size(from));
    TRY(read(view, (first / unit + done) * byte_size(from), chunk));
    cast_elements(from, dtype, chunk,
                  out.subspan(static_cast<std::size_t>(done * unit),
                              static_cast<std::size_t>(elements * unit)));
  }
  return {};
}

std::optional<std::uint32_t> Checkpoint::recorded_crc(std::size_t tensor) const {
  return recorded_crc(tensors()[tensor]);
}

std::optional<std::uint32_t> Checkpoint::recorded_crc(const TensorView& view) const {
  const Storage& storage = storages()[view.storage];
  const auto range = plain_range(view);
  const bool whole = range && view.storage_offset == 0 && range->length == storage.bytes;
  return whole ? storage.crc32 : std::nullopt;
}

Status Checkpoint::check_storage(std::uint32_t storage) const {
  if (const auto parts = contents_->all.made_of.find(storage);
      parts != contents_->all.made_of.end()) {
    for (const std::uint32_t part : parts->second) {
      TRY(check_storage(part));
    }
  }
  const Storage& stored = storages()[storage];
  const SourceFile& file = *contents_->all.files[stored.file];
  if (!stored.crc32) {
    return {};
  }
  if (stored.compression != Compression::kNone) {
    TRY(contents_->inflated->get(storage, stored, file));
    return {};
  }
  TRY_ASSIGN(const auto crc, range_crc32(file, stored.offset, stored.bytes));
  if (crc != *stored.crc32) {
    return fail(ErrorCode::kCorrupt,
                file.name() + ": byte " + std::to_string(stored.offset) + ": a record of " +
                    std::to_string(stored.bytes) +
                    " bytes is damaged (CRC-32 differs); copy or download the file again");
  }
  return {};
}

Status Checkpoint::check_unchanged() const {
  for (const auto& file : contents_->all.files) {
    TRY(file->check_unchanged());
  }
  return {};
}

}  // namespace onnx_external
