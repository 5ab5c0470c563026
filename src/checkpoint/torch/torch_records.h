// The records that torch puts into its zip files, whichever of its formats they are.
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

// Of records that hold one word: version, byteorder and the like.
inline constexpr std::uint64_t kMaxSmallRecord = 1024;

// Refuses a record `version` (or `.data/version`, which overrides it) of another format version
// than 1 to 10; another is noted in `facts`. A missing one is accepted.
[[nodiscard]] Status check_version(const ZipArchive& zip, FormatFacts& facts);

// What the record `byteorder` says; little when there is none.
[[nodiscard]] Result<ByteOrder> read_byte_order(const ZipArchive& zip);

// What the record holds, parsed; the error of its bytes when there are none.
[[nodiscard]] Result<Pickle> parse_pickle_record(const ZipArchive& zip, const ZipEntry& entry,
                                                 Result<std::string> bytes);

// The same of the record `name`. kCorrupt when there is none.
[[nodiscard]] Result<Pickle> read_pickle_record(const ZipArchive& zip, std::string_view name);

// The records that tensors view, each one storage of `part`.
class RecordStorages {
 public:
  RecordStorages(const ZipArchive& zip, ByteOrder order, FileContents& part)
      : zip_(zip), order_(order), part_(part), storages_(zip.entries().size()) {}

  // The storage that the record root/`name` is; adds it when it is new. kCorrupt when it is missing
  // or has not exactly `bytes` bytes: newer torch demands that too.
  [[nodiscard]] Result<std::uint32_t> find(const std::string& name, std::uint64_t bytes);

 private:
  const ZipArchive& zip_;
  ByteOrder order_;
  FileContents& part_;
  std::vector<std::optional<std::uint32_t>> storages_;  // index = ZipArchive::entries()
};

}  // namespace onnx_external
