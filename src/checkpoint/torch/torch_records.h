// Reads the records that torch's zip formats have in common, such as the version and the byte
// order, and finds the records of storages.
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

// The maximum size of records that contain one word, such as version and byteorder.
inline constexpr std::uint64_t kMaxSmallRecord = 1024;

// Stores the format version in `facts`. It is in the record `version`, or in `.data/version`, which
// takes precedence. Fails with kUnsupported for a version outside 1 to 10. The record may be
// missing.
[[nodiscard]] Status check_version(const ZipArchive& zip, FormatFacts& facts);

// Returns the byte order that the record `byteorder` states, or little-endian if there is no such
// record.
[[nodiscard]] Result<ByteOrder> read_byte_order(const ZipArchive& zip);

// Parses the pickle in the record `name`. Fails with kCorrupt if the record is missing.
[[nodiscard]] Result<Pickle> read_pickle_record(const ZipArchive& zip, std::string_view name);

// Adds a storage to `part` for each record that tensors view.
class RecordStorages {
 public:
  RecordStorages(const ZipArchive& zip, ByteOrder order, FileContents& part)
      : zip_(zip), order_(order), part_(part), storages_(zip.entries().size()) {}

  // Returns the index of the storage for the record root/`name`, after adding the storage if
  // necessary. Fails with kCorrupt if the record is missing or its size is not exactly `bytes`;
  // newer versions of torch also require this size. Fails with kUnsupported if the file was saved
  // without its data, and the data has not been written later.
  [[nodiscard]] Result<std::uint32_t> find(const std::string& name, std::uint64_t bytes);

 private:
  const ZipArchive& zip_;
  ByteOrder order_;
  FileContents& part_;
  std::vector<std::optional<std::uint32_t>> storages_;  // same indices as ZipArchive::entries()
  std::optional<bool> is_unfilled_;                     // set when it is first needed
};

}  // namespace onnx_external
