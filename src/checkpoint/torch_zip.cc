#include "checkpoint/torch_zip.h"

#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "checkpoint/nested_storages.h"
#include "checkpoint/pickle.h"
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

// The records that tensors view, each one storage of `part`.
class RecordStorages {
 public:
  RecordStorages(const ZipArchive& zip, ByteOrder order, CheckpointPart& part)
      : zip_(zip), order_(order), part_(part) {}

  // The record must have exactly the size that each persistent id declares: newer torch demands it.
  [[nodiscard]] Result<std::uint32_t> find(const TensorDeclaration& declared) {
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

 private:
  const ZipArchive& zip_;
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
  auto pickle = read_pickle(*zip);
  if (!pickle) {
    return fail(pickle.error());
  }
  const ZipEntry& text = *zip->find("data.pkl");
  const auto text_offset =
      text.compression == Compression::kNone ? std::optional(text.data_offset) : std::nullopt;
  CheckpointPart part;
  part.format = "torch-zip";
  part.files.push_back(std::move(file));
  RecordStorages storages(*zip, *order, part);
  status = add_all_tensors(
      *pickle, text_offset, options,
      [&](const TensorDeclaration& declared) { return storages.find(declared); }, part);
  if (!status) {
    return fail_in(where, std::move(status).error());
  }
  return part;
}

}  // namespace onnx_external
