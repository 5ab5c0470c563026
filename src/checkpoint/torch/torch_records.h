// Reads the records that torch's zip formats have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/container/zip_archive.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// For records that hold one word: version, byteorder and the like.
inline constexpr std::uint64_t kMaxSmallRecord = 1024;

// Refuses a record `version` (or `.data/version`, which overrides it) with a format version outside
// 1 to 10, and notes an accepted one in `facts`. The record may be missing.
[[nodiscard]] Status check_version(const ZipArchive& zip, FormatFacts& facts);

// The byte order that the record `byteorder` states; little if it is missing.
[[nodiscard]] Result<ByteOrder> read_byte_order(const ZipArchive& zip);

// Parses the record `name`. kCorrupt if it is missing.
[[nodiscard]] Result<Pickle> read_pickle_record(const ZipArchive& zip, std::string_view name);

// Adds a storage of `part` for each record that tensors view.
class RecordStorages {
 public:
  RecordStorages(const ZipArchive& zip, ByteOrder order, FileContents& part)
      : zip_(zip), order_(order), part_(part), storages_(zip.entries().size()) {}

  // The storage for the record root/`name`, added if it is new. kCorrupt if the record is missing
  // or does not have exactly `bytes` bytes, which newer torch requires too; kUnsupported if the
  // file was saved without its data and nobody has filled it since.
  [[nodiscard]] Result<std::uint32_t> find(const std::string& name, std::uint64_t bytes);

 private:
  const ZipArchive& zip_;
  ByteOrder order_;
  FileContents& part_;
  std::vector<std::optional<std::uint32_t>> storages_;  // index = ZipArchive::entries()
  std::optional<bool> is_unfilled_;                     // once it was asked
};

}  // namespace onnx_external
