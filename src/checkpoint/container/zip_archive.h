// Reads the directory of a zip file: its records, and where their bytes are.
//
// Reads what torch, Python's zipfile and common archivers write (docs/formats.md, "Zip"); rejects
// everything that two readers could interpret differently. No packaged library gives data offsets
// past 4 GiB and refuses overlapping or duplicate records, hence this code. Memory: the directory
// as stored in the file, plus about 110 bytes per record.
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
  std::string_view name;            // whole name; points into the directory's bytes
  std::uint64_t header_offset = 0;  // of the local header
  std::uint64_t data_offset = 0;
  std::uint64_t stored = 0;  // bytes in the file
  std::uint64_t size = 0;    // bytes when inflated
  std::uint32_t crc = 0;     // 0 although there are bytes: not computed
  Compression compression = Compression::kNone;
};

// Immutable; the entries' names point into it.
class ZipArchive {
 public:
  // kCorrupt, kUnsupported (encryption, other methods, several disks), kIo.
  [[nodiscard]] static Result<ZipArchive> open(std::shared_ptr<const SourceFile> file);

  // The one folder that all records are in; "" if the first record is in none, as in the flat
  // archives of torch.export.
  [[nodiscard]] std::string_view root() const { return root_; }
  [[nodiscard]] const std::vector<ZipEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::shared_ptr<const SourceFile>& file() const { return file_; }
  [[nodiscard]] std::string name() const { return file_->name(); }  // for messages
  // The number of bytes that follow the archive in the file; torch also ignores them.
  [[nodiscard]] std::uint64_t bytes_behind() const { return bytes_behind_; }

  // The name of a record without the root folder.
  [[nodiscard]] std::string_view name_in_root(const ZipEntry& entry) const {
    return entry.name.substr(root_.empty() ? 0 : root_.size() + 1);
  }

  // The record root/`name`, or nullptr. Case matters.
  [[nodiscard]] const ZipEntry* find(std::string_view name) const;

  // The bytes of a small record; checks their CRC. kUnsupported if it is larger than `max_bytes`,
  // or inflates to more than most_inflated_bytes().
  [[nodiscard]] Result<std::string> read_record(const ZipEntry& entry,
                                                std::uint64_t max_bytes) const;

  // A record that is read into memory may inflate to this many bytes: kAlwaysInflatedBytes plus
  // kMaxInflatedTimes the size of the file. The pickle of a state dict with 100,000 tensors
  // deflates 4 to 30 times, and each tensor has a record of its own in the file.
  [[nodiscard]] std::uint64_t most_inflated_bytes() const {
    return kAlwaysInflatedBytes + kMaxInflatedTimes * file_->size();
  }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_->size(); }
  static constexpr std::uint64_t kAlwaysInflatedBytes =
      kAlwaysExpandedBytes;  // for arrays of zeros
  static constexpr std::uint64_t kMaxInflatedTimes = 16;

 private:
  ZipArchive() = default;
  [[nodiscard]] Status index_names();

  std::shared_ptr<const SourceFile> file_;
  std::unique_ptr<std::string> directory_;  // on the heap: names survive moves
  std::vector<ZipEntry> entries_;
  // Maps the hash of the lower-case name below root() to an index into entries_. The hash is keyed,
  // so no file can force collisions, and it replaces the name.
  tsl::robin_map<std::uint64_t, std::uint32_t> by_name_;
  std::string_view root_;
  std::uint64_t bytes_behind_ = 0;
};

}  // namespace onnx_external
