#include "checkpoint/torch_zip.h"

#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/checked_math.h"
#include "base/text.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_names.h"
#include "checkpoint/torch_objects.h"
#include "checkpoint/zip_archive.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxSmallRecord = 1024;  // version, byteorder
// caffe2/serialize/versions.h: kMinSupportedFileFormatVersion, kMaxSupportedFileFormatVersion.
constexpr int kMinVersion = 1;
constexpr int kMaxVersion = 10;

Status check_kind(const ZipArchive& zip) {
  const std::string name = zip.file()->name();
  if (zip.find("constants.pkl") != nullptr || zip.find("model.json") != nullptr) {
    return fail(ErrorCode::kUnsupported,
                name + ": a TorchScript archive; save the module's state_dict() with torch.save");
  }
  if (zip.find("data.pkl") == nullptr) {
    return fail(ErrorCode::kUnsupported, name +
                                             ": this zip file is not a PyTorch checkpoint: it "
                                             "has no record 'data.pkl' in its folder");
  }
  return {};
}

Status check_version(const ZipArchive& zip) {
  const ZipEntry* entry = zip.find(".data/version");
  entry = entry == nullptr ? zip.find("version") : entry;
  if (entry == nullptr) {
    return {};
  }
  const auto text = zip.read_record(*entry, kMaxSmallRecord);
  if (!text) {
    return fail(text.error());
  }
  int version = 0;
  std::from_chars(text->data(), text->data() + text->size(), version);
  if (version < kMinVersion || version > kMaxVersion) {
    return fail(ErrorCode::kUnsupported, zip.file()->name() + ": record " + quote(entry->name) +
                                             ": torch format version " + quote(*text) +
                                             "; versions 1 to 10 are read");
  }
  return {};
}

Result<ByteOrder> read_byte_order(const ZipArchive& zip) {
  const ZipEntry* entry = zip.find("byteorder");
  if (entry == nullptr) {
    return ByteOrder::kLittle;
  }
  const auto text = zip.read_record(*entry, kMaxSmallRecord);
  if (!text) {
    return fail(text.error());
  }
  if (*text == "little") {
    return ByteOrder::kLittle;
  }
  if (*text == "big") {
    return ByteOrder::kBig;
  }
  return fail(ErrorCode::kCorrupt, zip.file()->name() + ": record " + quote(entry->name) +
                                       ": byte order " + quote(*text) +
                                       " is neither 'little' nor 'big'");
}

// Turns declarations into views of storages that were checked against their records.
class TensorReader {
 public:
  TensorReader(const ZipArchive& zip, const Pickle& pickle, ByteOrder order, CheckpointPart& part)
      : zip_(zip), pickle_(pickle), order_(order), part_(part) {}

  [[nodiscard]] Status add(NamedTensor named) {
    auto declared = declared_tensor(pickle_, named.node);
    if (!declared) {
      return fail(std::move(declared).error());
    }
    const auto storage = storage_of(*declared);
    if (!storage) {
      return fail(storage.error());
    }
    const auto offset = checked_offset(*declared, part_.storages[*storage].bytes);
    if (!offset) {
      return fail(offset.error());
    }
    TensorView view;
    view.name = std::move(named.name);
    view.dtype = declared->dtype;
    view.shape = std::move(declared->shape);
    view.strides = std::move(declared->strides);
    view.storage = *storage;
    view.storage_offset = *offset;
    part_.tensors.push_back(std::move(view));
    return {};
  }

 private:
  // The record must have exactly the size that each persistent id declares: newer torch demands it.
  [[nodiscard]] Result<std::uint32_t> storage_of(const TensorDeclaration& declared) {
    const ZipEntry* entry = zip_.find("data/" + declared.storage_key);
    if (entry == nullptr) {
      return fail(ErrorCode::kCorrupt, "its record " + quote("data/" + declared.storage_key) +
                                           " is missing; copy or download the file again");
    }
    if (entry->size != declared.storage_bytes) {
      return fail(ErrorCode::kCorrupt,
                  "its record " + quote(entry->name) + " has " + std::to_string(entry->size) +
                      " bytes, the pickle says " + std::to_string(declared.storage_bytes));
    }
    const auto [known, is_new] =
        storages_.try_emplace(entry, static_cast<std::uint32_t>(part_.storages.size()));
    if (is_new) {
      Storage storage{.offset = entry->data_offset,
                      .stored_bytes = entry->stored,
                      .bytes = entry->size,
                      .compression = entry->compression,
                      .byte_order = order_,
                      .crc32 = std::nullopt};
      if (entry->crc != 0) {  // 0 is what torch writes when told not to compute CRCs
        storage.crc32 = entry->crc;
      }
      part_.storages.push_back(storage);
    }
    return known->second;
  }

  // Bytes from the start of the storage to element 0, once the whole view lies inside.
  [[nodiscard]] static Result<std::uint64_t> checked_offset(const TensorDeclaration& declared,
                                                            std::uint64_t storage_bytes) {
    const auto extent = extent_bytes(declared.dtype, declared.shape, declared.strides);
    const auto nbytes = extent ? contiguous_nbytes(declared.dtype, declared.shape) : extent;
    if (!nbytes) {
      return fail(nbytes.error());
    }
    if (*nbytes == 0) {
      return std::uint64_t{0};  // torch lets empty tensors point anywhere
    }
    const auto offset = checked_mul<std::uint64_t>(static_cast<std::uint64_t>(declared.offset),
                                                   byte_size(declared.dtype));
    if (!offset || !range_fits(*offset, *extent, storage_bytes)) {
      return fail(ErrorCode::kCorrupt,
                  "shape " + shape_text(declared.shape) + ", stride " +
                      shape_text(declared.strides) + ", offset " + std::to_string(declared.offset) +
                      " reach outside its record of " + std::to_string(storage_bytes) + " bytes");
    }
    return *offset;
  }

  const ZipArchive& zip_;
  const Pickle& pickle_;
  ByteOrder order_;
  CheckpointPart& part_;
  std::unordered_map<const ZipEntry*, std::uint32_t> storages_;
};

Result<Pickle> read_pickle(const ZipArchive& zip) {
  const ZipEntry& entry = *zip.find("data.pkl");
  auto bytes = zip.read_record(entry, kMaxPickleBytes);
  if (!bytes) {
    return fail(std::move(bytes).error());
  }
  auto pickle = Pickle::parse(*std::move(bytes));
  if (!pickle) {
    return fail_in(zip.file()->name() + ": record " + quote(entry.name), std::move(pickle).error());
  }
  return pickle;
}

}  // namespace

Result<CheckpointPart> read_torch_zip(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  auto zip = ZipArchive::open(file);
  if (!zip) {
    return fail(std::move(zip).error());
  }
  auto status = check_kind(*zip);
  if (status) {
    status = check_version(*zip);
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  const auto order = read_byte_order(*zip);
  if (!order) {
    return fail(order.error());
  }
  const auto pickle = read_pickle(*zip);
  if (!pickle) {
    return fail(pickle.error());
  }
  const bool everything = options.selection == Selection::kEverything;
  auto named = everything ? name_everything(*pickle) : name_state_dict(*pickle, options.key);
  if (!named) {
    return fail_in(where, std::move(named).error());
  }
  CheckpointPart part;
  part.format = "torch-zip";
  part.files.push_back(std::move(file));
  part.opaque = std::move(named->opaque);
  part.refused = std::move(named->refused);
  TensorReader reader(*zip, *pickle, *order, part);
  for (NamedTensor& tensor : named->tensors) {
    const std::string name = tensor.name;
    status = reader.add(std::move(tensor));
    if (!status && everything && status.error().code == ErrorCode::kUnsupported) {
      part.refused.push_back({name, status.error().message});
    } else if (!status) {
      return fail_in(where + ": tensor " + quote(name), std::move(status).error());
    }
  }
  return part;
}

}  // namespace onnx_external
