#include "checkpoint/torch/torch_records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// caffe2/serialize/versions.h: kMinSupportedFileFormatVersion, kMaxSupportedFileFormatVersion.
constexpr int kMinVersion = 1;
constexpr int kMaxVersion = 10;

// Nodes of a compressed pickle: a byte of it can stand for a thousand, and each takes 16 bytes and
// more. torch writes a dozen for a tensor, whose record takes 150 bytes at least.
constexpr std::uint64_t kAlwaysInflatedNodes = 500'000;
constexpr std::uint64_t kBytesPerNode = 2;  // of the file

// torch.save inside torch.serialization.skip_data() gives each storage a record of the right size,
// which the caller fills later, and for which it computes no CRC-32, as it does for the others.
bool is_saved_without_data(const ZipArchive& zip) {
  const ZipEntry* pickle = zip.find("data.pkl");
  return pickle != nullptr && pickle->crc != 0 &&
         std::all_of(zip.entries().begin(), zip.entries().end(), [&](const ZipEntry& entry) {
           return entry.size == 0 || !zip.name_in_root(entry).starts_with("data/") ||
                  (entry.crc == 0 && entry.compression == Compression::kNone);
         });
}

constexpr std::size_t kSampleBytes = 4096;

// Returns whether samples of the record are all zeros: its first bytes, those in the middle, and
// the last ones.
Result<bool> looks_empty(const SourceFile& file, const ZipEntry& entry) {
  std::array<std::byte, kSampleBytes> buffer{};
  const std::uint64_t bytes = std::min<std::uint64_t>(entry.size, buffer.size());
  const auto sample = std::span(buffer).first(static_cast<std::size_t>(bytes));
  for (const std::uint64_t at : {std::uint64_t{0}, (entry.size - bytes) / 2, entry.size - bytes}) {
    TRY(file.read(entry.data_offset + at, sample));
    if (std::any_of(sample.begin(), sample.end(),
                    [](std::byte value) { return value != std::byte{0}; })) {
      return false;
    }
  }
  return true;
}

// Returns whether a file that was saved without data has not been filled: all records that are
// sampled are zeros.
Result<bool> is_unfilled(const ZipArchive& zip) {
  constexpr std::size_t kMostSamples = 64;
  if (!is_saved_without_data(zip)) {
    return false;
  }
  std::size_t sampled = 0;
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.size == 0 || !zip.name_in_root(entry).starts_with("data/")) {
      continue;
    }
    TRY_ASSIGN(const bool empty, looks_empty(*zip.file(), entry));
    if (!empty) {
      return false;
    }
    if (++sampled == kMostSamples) {
      break;
    }
  }
  return true;
}

}  // namespace

Status check_version(const ZipArchive& zip, FormatFacts& facts) {
  const ZipEntry* entry = zip.find(".data/version");
  entry = entry == nullptr ? zip.find("version") : entry;
  if (entry == nullptr) {
    return {};
  }
  TRY_ASSIGN(const auto text, zip.read_record(*entry, kMaxSmallRecord));
  int version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  if (version < kMinVersion || version > kMaxVersion) {
    return fail(ErrorCode::kUnsupported, zip.name() + ": record " + quote(entry->name) +
                                             ": torch format version " + quote(text) +
                                             "; versions 1 to 10 are read");
  }
  facts.version = std::to_string(version);
  return {};
}

Result<ByteOrder> read_byte_order(const ZipArchive& zip) {
  const ZipEntry* entry = zip.find("byteorder");
  if (entry == nullptr) {
    return ByteOrder::kLittle;
  }
  TRY_ASSIGN(const auto text, zip.read_record(*entry, kMaxSmallRecord));
  if (text == "little") {
    return ByteOrder::kLittle;
  }
  if (text == "big") {
    return ByteOrder::kBig;
  }
  return fail(ErrorCode::kCorrupt, zip.name() + ": record " + quote(entry->name) + ": byte order " +
                                       quote(text) + " is neither 'little' nor 'big'");
}

Result<Pickle> read_pickle_record(const ZipArchive& zip, std::string_view name) {
  const ZipEntry* entry = zip.find(name);
  if (entry == nullptr) {
    return fail(ErrorCode::kCorrupt, zip.name() + ": record " + quote(name) + " is missing");
  }
  PickleText text;
  TRY_ASSIGN(text.bytes, zip.read_record(*entry, kMaxPickleBytes));
  if (entry->compression != Compression::kNone) {
    text.max_nodes = std::min<std::uint64_t>(
        kMaxPickleNodes, kAlwaysInflatedNodes + zip.file_bytes() / kBytesPerNode);
  }
  TRY_ASSIGN_IN(zip.name() + ": record " + quote(entry->name), auto pickle,
                Pickle::parse(std::move(text)));
  return pickle;
}

Result<std::uint32_t> RecordStorages::find(const std::string& name, std::uint64_t bytes) {
  const ZipEntry* entry = zip_.find(name);
  if (entry == nullptr) {
    return fail(ErrorCode::kCorrupt,
                "its record " + quote(name) + " is missing; copy or download the file again");
  }
  if (entry->size != bytes) {
    return fail(ErrorCode::kCorrupt, "its record " + quote(entry->name) + " has " +
                                         std::to_string(entry->size) +
                                         " bytes, but the pickle says " + std::to_string(bytes));
  }
  if (entry->crc == 0 && entry->size > 0) {
    if (!is_unfilled_) {
      TRY_ASSIGN(is_unfilled_, is_unfilled(zip_));
    }
    if (*is_unfilled_) {
      return unsupported(
          "its file was saved without data (torch.serialization.skip_data) and was not filled "
          "later; fill the file, or save it again");
    }
  }
  auto& known = storages_[static_cast<std::size_t>(entry - zip_.entries().data())];
  if (!known) {
    known = static_cast<std::uint32_t>(part_.storages.size());
    Storage storage{.offset = entry->data_offset,
                    .stored_bytes = entry->stored,
                    .bytes = entry->size,
                    .compression = entry->compression,
                    .byte_order = order_,
                    .crc32 = std::nullopt};
    if (entry->crc != 0) {  // torch writes 0 if it does not compute CRCs
      storage.crc32 = entry->crc;
    }
    part_.storages.push_back(storage);
  }
  return *known;
}

}  // namespace onnx_external
