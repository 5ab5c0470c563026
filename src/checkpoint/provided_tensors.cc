#include "onnx_external/provided_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/checked_math.h"
#include "base/file.h"
#include "base/memory_runs.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/provided_checkpoint.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"
#include "tensor/view_bits.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> refused(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

// More files than this are opened when they are needed: a process may have few open at a time.
constexpr std::size_t kMaxOpenFiles = 128;

std::uint64_t storage_bytes(const ProvidedTensor& tensor) {
  if (const auto* file = std::get_if<FileBytes>(&tensor.storage)) {
    return file->length;
  }
  const auto* memory = std::get_if<MemoryBytes>(&tensor.storage);
  return memory != nullptr ? memory->size : std::get<LazyBytes>(tensor.storage).size;
}

Status check_form(const TensorInfo& info, std::span<const std::int64_t> strides) {
  if (info.shape.size() > kMaxRank) {
    return refused(fmt::format("{} dimensions are more than {}", info.shape.size(), kMaxRank));
  }
  if (const auto count = contiguous_nbytes(info.dtype, info.shape); !count) {
    return refused(count.error().message);
  }
  if (!strides.empty() && strides.size() != info.shape.size()) {
    return refused(fmt::format("{} strides for {} dimensions", strides.size(), info.shape.size()));
  }
  if (std::any_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride < 0; })) {
    return refused("a stride is negative; make the tensor contiguous first");
  }
  return {};
}

Status check_storage_of(const ProvidedTensor& tensor) {
  const auto* memory = std::get_if<MemoryBytes>(&tensor.storage);
  if (memory != nullptr && memory->data == nullptr && memory->size > 0) {
    return refused(fmt::format("{} bytes at a null address", memory->size));
  }
  const auto* made = std::get_if<LazyBytes>(&tensor.storage);
  if (made != nullptr && !made->make) {
    return refused("there is no function that produces its bytes");
  }
  return {};
}

// The view of `tensor`, but for its storage.
Result<TensorView> view_of(const ProvidedTensor& tensor) {
  TRY(check_form(tensor.info, tensor.strides));
  TensorView view;
  static_cast<TensorInfo&>(view) = tensor.info;
  view.strides = tensor.strides.empty() ? contiguous_strides(tensor.info.shape) : tensor.strides;
  view.storage_offset = tensor.storage_offset;
  view.conj = tensor.conj;
  view.neg = tensor.neg;
  if ((view.conj || view.neg) && !has_view_bits(view.dtype, view.conj, view.neg)) {
    return refused(fmt::format("{} cannot be {}", torch_name(view.dtype),
                               view.conj ? "conjugated" : "negated"));
  }
  if (bit_size(view.dtype) < CHAR_BIT && !is_contiguous(view.shape, view.strides)) {
    return refused(std::string(torch_name(view.dtype)) +
                   " packs several values into a byte, so the tensor must be contiguous");
  }
  TRY(check_storage_of(tensor));
  const auto extent = extent_bytes(view.dtype, view.shape, view.strides);
  const std::uint64_t bytes = storage_bytes(tensor);
  if (!extent || !range_fits(view.storage_offset, *extent, bytes)) {
    return refused(fmt::format("{} {} needs {} bytes from byte {} on, but there are {}",
                               torch_name(view.dtype), shape_text(view.shape),
                               extent ? std::to_string(*extent) : "more than 2^63",
                               view.storage_offset, bytes));
  }
  return view;
}

class ProvidedReader {
 public:
  ProvidedReader(std::vector<ProvidedTensor> tensors, ProvidedNames names)
      : tensors_(std::move(tensors)), names_(names) {}

  Result<FileContents> read(const ProvidedOptions& options) {
    contents_.format = "loose";
    for (ProvidedTensor& tensor : tensors_) {
      TRY(check_name(tensor.info.name));
      TRY_IN("tensor " + quote(tensor.info.name), add(tensor));
    }
    TRY(add_runs(options));
    return std::move(contents_);
  }

 private:
  Status check_name(const std::string& name) {
    if (names_ == ProvidedNames::kAny) {
      return {};
    }
    if (name.empty() || !is_utf8(name)) {
      return refused("tensor " + quote(name) +
                     (name.empty() ? ": has no name" : ": its name is not UTF-8"));
    }
    return known_names_.insert(name).second ? Status()
                                            : refused("tensor " + quote(name) + " is passed twice");
  }

  Status add(ProvidedTensor& tensor) {
    TRY_ASSIGN(auto view, view_of(tensor));
    view.storage = static_cast<std::uint32_t>(contents_.storages.size());
    Storage storage;
    storage.bytes = storage_bytes(tensor);
    storage.stored_bytes = storage.bytes;
    if (const auto* range = std::get_if<FileBytes>(&tensor.storage)) {
      TRY(add_range(*range, view, storage));
    } else if (auto* memory = std::get_if<MemoryBytes>(&tensor.storage)) {
      storage.kind = StorageKind::kMemory;
      placed_.emplace_back(view.storage, memory->data);
      blocks_.push_back({memory->data, memory->size, std::move(memory->owner)});
    } else {
      storage.kind = StorageKind::kMade;
      made_of_.emplace_back(view.storage, add_made(view, std::get<LazyBytes>(tensor.storage)));
    }
    contents_.storages.push_back(storage);
    contents_.tensors.push_back(std::move(view));
    return {};
  }

  Status add_range(const FileBytes& range, const TensorView& view, Storage& storage) {
    auto known = files_.find(range.path);
    if (known == files_.end() && files_.size() == kMaxOpenFiles) {
      storage.kind = StorageKind::kMade;
      TRY_ASSIGN(const auto index, add_closed(range, view.name));
      made_of_.emplace_back(view.storage, index);
      return {};
    }
    if (known == files_.end()) {
      TRY_ASSIGN(auto file, SourceFile::open(range.path));
      known = files_.emplace(range.path, contents_.files.size()).first;
      contents_.files.push_back(std::move(file));
    }
    storage.file = known->second;
    storage.offset = range.offset;
    return contents_.files[storage.file]->check_range(range.offset, range.length);
  }

  // A range whose file is closed again: its bytes are made by reading them.
  Result<std::size_t> add_closed(const FileBytes& range, const std::string& name) {
    const auto known = closed_.find({range.path, range.offset, range.length});
    if (known != closed_.end()) {
      return known->second;
    }
    TRY_ASSIGN(const auto now, SourceFile::open(range.path));
    TRY(now->check_range(range.offset, range.length));
    TRY_ASSIGN(const auto stamp, now->stamp());
    const auto read = [range, stamp](std::span<std::byte> out) -> Status {
      TRY_ASSIGN(const auto file, SourceFile::open(range.path));
      TRY_ASSIGN(const auto later, file->stamp());
      if (later != stamp) {
        return fail(ErrorCode::kCorrupt,
                    file->name() + ": was changed while it was being read; try again");
      }
      return file->read(range.offset, out);
    };
    made_.push_back({"tensor " + quote(name), range.length, read});
    closed_.emplace(std::tuple(range.path, range.offset, range.length), made_.size() - 1);
    return made_.size() - 1;
  }

  // Tensors with the same identity share the produced bytes if their views are equal.
  std::size_t add_made(const TensorView& view, LazyBytes& bytes) {
    const auto add = [&] {
      made_.push_back({"tensor " + quote(view.name), bytes.size, std::move(bytes.make)});
      return made_.size() - 1;
    };
    if (bytes.identity == 0) {
      return add();
    }
    const ViewOfMade key(bytes.identity, bytes.size, view.dtype, view.shape, view.strides,
                         view.storage_offset, view.conj, view.neg);
    const auto known = made_views_.find(key);
    return known != made_views_.end() ? known->second
                                      : made_views_.emplace(key, add()).first->second;
  }

  Status add_runs(const ProvidedOptions& options) {
    TRY_ASSIGN(const auto runs,
               MemoryRuns::of(std::move(blocks_), std::move(made_), options.max_lazy_at_once));
    if (placed_.empty() && made_of_.empty()) {
      return {};
    }
    const auto file = static_cast<std::uint32_t>(contents_.files.size());
    for (const auto& [storage, data] : placed_) {
      contents_.storages[storage].file = file;
      contents_.storages[storage].offset = runs->offset_of(data);
    }
    for (const auto& [storage, index] : made_of_) {
      contents_.storages[storage].file = file;
      contents_.storages[storage].offset = runs->offset_of_made(index);
    }
    contents_.files.push_back(SourceFile::of_runs(runs));
    return {};
  }

  using ViewOfMade = std::tuple<std::uint64_t, std::uint64_t, DType, Shape,
                                std::vector<std::int64_t>, std::uint64_t, bool, bool>;

  std::vector<ProvidedTensor> tensors_;
  ProvidedNames names_;
  FileContents contents_;
  NameSet known_names_;
  std::map<std::filesystem::path, std::uint32_t> files_;
  std::map<std::tuple<std::filesystem::path, std::uint64_t, std::uint64_t>, std::size_t>
      closed_;  // ranges of files that are not in files_ -> index into made_
  std::vector<MemoryBlock> blocks_;
  std::vector<std::pair<std::uint32_t, const std::byte*>> placed_;  // storage, its bytes
  std::vector<MadeBlock> made_;
  std::vector<std::pair<std::uint32_t, std::size_t>> made_of_;  // storage, index into made_
  std::map<ViewOfMade, std::size_t> made_views_;
};

}  // namespace

Result<Checkpoint> provided_checkpoint(std::vector<ProvidedTensor> tensors,
                                       const ProvidedOptions& options, ProvidedNames names) {
  TRY_ASSIGN(auto contents, ProvidedReader(std::move(tensors), names).read(options));
  auto all = std::make_unique<CheckpointAccess::Contents>(std::filesystem::path());
  all->arguments.resize(contents.tensors.size(), 0);
  all->all = std::move(contents);
  return CheckpointAccess::make(std::move(all));
}

Result<Checkpoint> checkpoint_of(std::vector<ProvidedTensor> tensors,
                                 const ProvidedOptions& options) {
  return provided_checkpoint(std::move(tensors), options, ProvidedNames::kUnique);
}

}  // namespace onnx_external
