#include "checkpoint/dcp/dcp.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/dcp/dcp_chunks.h"
#include "checkpoint/dcp/dcp_metadata.h"
#include "checkpoint/dcp/dcp_names.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/formats/shard_index.h"
#include "checkpoint/pickle/pickle.h"

namespace onnx_external {
namespace {

// FileSystemWriter can write safetensors files, whose places it does not record; torch cannot load
// them either.
Status refuse_safetensors(const SourceFile& file) {
  TRY_ASSIGN(const auto format, sniff_format(file));
  if (format != FileFormat::kSafetensors) {
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              file.name() +
                  ": a safetensors file (SerializationFormat.SAFETENSORS), which torch "
                  "itself does not load from a distributed checkpoint; save it with "
                  "the default format, or with HuggingFaceStorageWriter");
}

// A slice of an open file, and the result of reading it: its only tensor, without a name, or an
// error.
struct Slice {
  std::uint32_t file = 0;  // index into FileContents::files
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<Result<TensorView>> view = {};

  [[nodiscard]] auto range() const { return std::tie(file, offset, length); }
};

// The slices that the selected tensors need. They must not share bytes, which bounds the work of
// reading them by the size of the files; honest ones never do.
class Slices {
 public:
  Slices(const std::filesystem::path& folder, FileContents& part) : folder_(folder), part_(part) {}

  [[nodiscard]] Status add(const DcpSlice& slice) {
    const auto [known, is_new] =
        files_.try_emplace(slice.file, static_cast<std::uint32_t>(part_.files.size()));
    if (is_new) {
      TRY_ASSIGN(auto file, open_shard(folder_, slice.file));
      part_.files.push_back(std::move(file));
    }
    slices_.push_back({.file = known->second, .offset = slice.offset, .length = slice.length});
    return {};
  }

  // Call it after the last add().
  [[nodiscard]] Status check_apart() {
    const auto before = [](const Slice& a, const Slice& b) { return a.range() < b.range(); };
    const auto same = [](const Slice& a, const Slice& b) { return a.range() == b.range(); };
    std::sort(slices_.begin(), slices_.end(), before);
    slices_.erase(std::unique(slices_.begin(), slices_.end(), same), slices_.end());
    for (std::size_t i = 1; i < slices_.size(); ++i) {
      const Slice& a = slices_[i - 1];
      const Slice& b = slices_[i];
      if (a.file == b.file && b.offset - a.offset < a.length) {
        TRY(refuse_safetensors(*part_.files[a.file]));
        return fail(ErrorCode::kCorrupt,
                    part_.files[a.file]->name() + ": byte " + std::to_string(b.offset) +
                        ": a slice begins inside the slice at byte " + std::to_string(a.offset));
      }
    }
    return {};
  }

  // The tensor of a slice, which is read only once. Requires: the slice was added.
  [[nodiscard]] const Result<TensorView>& get(const DcpSlice& wanted) {
    const Slice key{
        .file = files_.at(wanted.file), .offset = wanted.offset, .length = wanted.length};
    const auto slice =
        std::lower_bound(slices_.begin(), slices_.end(), key,
                         [](const Slice& a, const Slice& b) { return a.range() < b.range(); });
    if (!slice->view) {
      slice->view = load(*slice);
    }
    return *slice->view;
  }

 private:
  [[nodiscard]] Result<TensorView> load(const Slice& slice) {
    TRY_ASSIGN(const auto file,
               SourceFile::slice(part_.files[slice.file], slice.offset, slice.length));
    TRY_ASSIGN(const auto format, sniff_format(*file));
    const std::string where = file->name();
    TRY(refuse_safetensors(*file));
    if (format != FileFormat::kTorchZip && format != FileFormat::kTorchLegacy) {
      return fail(ErrorCode::kUnsupported,
                  where + ": not what torch.save writes; other serializations cannot be read");
    }
    TRY_ASSIGN(auto part, read_checkpoint_file(file, {.selection = Selection::kEverything}));
    if (!part.refused.empty()) {
      return fail(ErrorCode::kUnsupported, where + ": " + part.refused[0].reason);
    }
    if (part.tensors.size() != 1 || !part.tensors[0].name.empty()) {
      return fail(ErrorCode::kUnsupported, where + ": does not contain exactly one tensor");
    }
    TensorView view = std::move(part.tensors[0]);
    Storage storage = part.storages[view.storage];
    if (storage.computed || storage.compression != Compression::kNone) {
      return fail(ErrorCode::kUnsupported,
                  where + ": its tensor is compressed or converted; save it again with torch");
    }
    storage.file = slice.file;
    storage.offset += slice.offset;
    view.storage = static_cast<std::uint32_t>(part_.storages.size());
    part_.storages.push_back(storage);
    return view;
  }

  const std::filesystem::path folder_;
  FileContents& part_;
  std::map<std::string, std::uint32_t> files_;
  std::vector<Slice> slices_;  // sorted once complete
};

// Puts the tensors into `part`, and adds their storages if these are new.
class Assembler {
 public:
  Assembler(Slices& slices, FileContents& part) : slices_(slices), part_(part) {}

  [[nodiscard]] Result<TensorView> tensor(const DcpItem& item) {
    if (!item.refusal.empty()) {
      return fail(ErrorCode::kUnsupported, item.refusal);
    }
    TRY_ASSIGN(const auto nbytes, contiguous_nbytes(item.dtype, item.shape));
    if (nbytes == 0) {
      return computed_view(item, add_storage({}));
    }
    std::vector<ChunkBox> boxes;
    for (const DcpChunk& chunk : item.chunks) {
      boxes.push_back({chunk.offsets, chunk.sizes});
    }
    TRY(check_cover(item.shape, boxes));
    if (item.chunks.size() == 1) {
      return chunk_view(item, item.chunks[0]);
    }
    return assembled(item, nbytes);
  }

 private:
  std::uint32_t add_storage(const Storage& storage) {
    part_.storages.push_back(storage);
    return static_cast<std::uint32_t>(part_.storages.size() - 1);
  }

  static TensorView computed_view(const DcpItem& item, std::uint32_t storage) {
    TensorView view;
    view.dtype = item.dtype;
    view.shape = item.shape;
    view.strides = contiguous_strides(item.shape);
    view.storage = storage;
    return view;
  }

  [[nodiscard]] Result<TensorView> chunk_view(const DcpItem& item, const DcpChunk& chunk) {
    const Result<TensorView>& view = slices_.get(chunk.slice);
    if (!view) {
      return fail_in("chunk at " + shape_text(chunk.offsets), view.error());
    }
    if (view->dtype != item.dtype || view->shape != chunk.sizes) {
      return fail(ErrorCode::kCorrupt,
                  "chunk at " + shape_text(chunk.offsets) + ": its slice contains " +
                      std::string(torch_name(view->dtype)) + " " + shape_text(view->shape) +
                      ", but '.metadata' says " + std::string(torch_name(item.dtype)) + " " +
                      shape_text(chunk.sizes));
    }
    return view;
  }

  [[nodiscard]] Result<TensorView> assembled(const DcpItem& item, std::uint64_t nbytes) {
    std::vector<ChunkSource> sources;
    std::vector<std::uint32_t> storages;
    for (const DcpChunk& chunk : item.chunks) {
      TRY_ASSIGN(auto view, chunk_view(item, chunk));
      storages.push_back(view.storage);
      const Storage& storage = part_.storages[storages.back()];
      sources.push_back({.box = {chunk.offsets, chunk.sizes},
                         .view = std::move(view),
                         .storage = storage,
                         .file = part_.files[storage.file]});
    }
    const auto chunks =
        std::make_shared<const ChunkedTensor>(item.dtype, item.shape, std::move(sources));
    Storage whole;
    whole.bytes = nbytes;
    whole.computed = true;
    const std::uint32_t storage = add_storage(whole);
    part_.computed.emplace(storage, [chunks](std::uint64_t offset, std::span<std::byte> out) {
      return chunks->read(offset, out);
    });
    part_.made_of.emplace(storage, std::move(storages));
    return computed_view(item, storage);
  }

  Slices& slices_;
  FileContents& part_;
};

Result<std::vector<DcpItem>> read_items(const SourceFile& metadata, FormatFacts& facts) {
  TRY_ASSIGN(auto bytes, read_file(metadata, kMaxPickleBytes));
  TRY_ASSIGN_IN(metadata.name(), const auto pickle, Pickle::parse(std::move(bytes)));
  facts.pickle_protocol = pickle.protocol();
  TRY_ASSIGN_IN(metadata.name(), auto items, parse_dcp_metadata(pickle));
  return items;
}

Status add_slices(const std::vector<DcpItem>& items, const NamedDcpItems& named, Slices& slices) {
  for (const NamedDcpTensor& tensor : named.tensors) {
    for (const DcpChunk& chunk : items[tensor.item].chunks) {
      TRY_IN("tensor " + quote(tensor.name), slices.add(chunk.slice));
    }
  }
  return slices.check_apart();
}

}  // namespace

Result<FileContents> read_dcp(std::shared_ptr<const SourceFile> metadata,
                              const OpenOptions& options) {
  const std::string where = metadata->name();
  FileContents part;
  TRY_ASSIGN(const auto items, read_items(*metadata, part.facts));
  TRY_ASSIGN_IN(where, auto named, name_dcp_items(items, options));
  part.format = "dcp";
  const std::filesystem::path folder = metadata->path().parent_path();
  part.files.push_back(std::move(metadata));  // also the file of storages that are in no file
  part.opaque = std::move(named.opaque);
  part.refused = std::move(named.refused);
  Slices slices(folder, part);
  TRY_IN(where, add_slices(items, named, slices));
  Assembler assembler(slices, part);
  for (NamedDcpTensor& tensor : named.tensors) {
    auto view = assembler.tensor(items[tensor.item]);
    if (view) {
      view->name = std::move(tensor.name);
      part.tensors.push_back(*std::move(view));
    } else if (options.selection == Selection::kEverything &&
               view.error().code == ErrorCode::kUnsupported) {
      part.refused.push_back({tensor.name, view.error().message});
    } else {
      return fail_in(where + ": tensor " + quote(tensor.name), std::move(view).error());
    }
  }
  return part;
}

}  // namespace onnx_external
