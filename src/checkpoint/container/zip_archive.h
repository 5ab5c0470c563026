// Reads the directory of a zip file: its records, and the offsets of their data.
//
// Reads zip files that torch, Python's zipfile and common archivers write (docs/formats.md, "Zip"),
// and rejects files that two readers could interpret differently. No packaged library is used,
// because none both returns data offsets past 4 GiB and rejects overlapping or duplicate records.
// Memory use is the size of the directory in the file, plus about 110 bytes per record.
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::uint64_t kMaxZipDirectoryBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxZipRecords = 10'000'000;

struct ZipEntry {
  std::string_view name;            // the full name; points into the directory's bytes
  std::uint64_t header_offset = 0;  // offset of the local header
  std::uint64_t data_offset = 0;
  std::uint64_t stored = 0;  // bytes in the file
  std::uint64_t size = 0;    // bytes when inflated
  std::uint32_t crc = 0;     // 0 for a non-empty record means that the writer did not compute it
  Compression compression = Compression::kNone;
};

// A zip file. Immutable. The names of the entries point into this object.
class ZipArchive {
 public:
  // Reads the directory. Errors: kCorrupt; kIo; kUnsupported for encryption, other compression
  // methods and multiple disks.
  [[nodiscard]] static Result<ZipArchive> open(std::shared_ptr<const SourceFile> file);

  // Returns the folder that contains all records; "" if the first record is not in a folder, as in
  // the flat archives that torch.export writes.
  [[nodiscard]] std::string_view root() const { return root_; }
  [[nodiscard]] const std::vector<ZipEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::shared_ptr<const SourceFile>& file() const { return file_; }
  [[nodiscard]] std::string name() const { return file_->name(); }  // for messages
  // Returns the number of bytes after the archive in the file. They are ignored, as in torch.
  [[nodiscard]] std::uint64_t bytes_behind() const { return bytes_behind_; }

  // Returns the name of a record without the root folder.
  [[nodiscard]] std::string_view name_in_root(const ZipEntry& entry) const {
    return entry.name.substr(root_.empty() ? 0 : root_.size() + 1);
  }

  // Returns the record root/`name`, or nullptr if there is none. Names are case-sensitive.
  [[nodiscard]] const ZipEntry* find(std::string_view name) const;

  // Returns the bytes of a small record after checking their CRC. Fails with kUnsupported if the
  // record has more than `max_bytes` bytes, or is compressed and has more than
  // most_inflated_bytes().
  [[nodiscard]] Result<std::string> read_record(const ZipEntry& entry,
                                                std::uint64_t max_bytes) const;

  // Returns the maximum size to which a record that is read into memory may inflate:
  // kAlwaysInflatedBytes plus kMaxInflatedTimes times the size of the file. The limit is sufficient
  // because the pickle of a state dict with 100,000 tensors deflates by a factor of 4 to 30, and
  // the file also has a record for each tensor.
  [[nodiscard]] std::uint64_t most_inflated_bytes() const {
    return kAlwaysInflatedBytes + kMaxInflatedTimes * file_->size();
  }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_->size(); }
  static constexpr std::uint64_t kAlwaysInflatedBytes =
      kAlwaysExpandedBytes;  // enough for small arrays of zeros
  static constexpr std::uint64_t kMaxInflatedTimes = 16;

 private:
  ZipArchive() = default;
  [[nodiscard]] Status index_names();

  std::shared_ptr<const SourceFile> file_;
  std::unique_ptr<std::string> directory_;  // on the heap, so that names stay valid after moves
  std::vector<ZipEntry> entries_;
  // Maps the hash of a lower-case name below root() to an index into entries_. The map stores
  // hashes instead of names. The hash has a secret key, so that a file cannot force collisions.
  tsl::robin_map<std::uint64_t, std::uint32_t> by_name_;
  std::string_view root_;
  std::uint64_t bytes_behind_ = 0;
};

}  // namespace onnx_external
