// Finds and parses the central directory of a zip file, and locates the data of its records.
// ZipArchive::open() calls these functions in order.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/container/zip_archive.h"

namespace onnx_external {

// The position of the central directory, according to the end records.
struct ZipDirectoryRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t entries = 0;
  std::uint64_t bytes_behind = 0;  // bytes after the archive that are not its comment
};

// Finds the end record (or the zip64 end record) and checks that the directory ends where the end
// records begin.
[[nodiscard]] Result<ZipDirectoryRange> find_zip_directory(const SourceFile& file);

// Returns one entry per central header, in directory order. data_offset is not set yet. `directory`
// is the bytes of the directory. The names of the entries point into it, so it must outlive them.
[[nodiscard]] Result<std::vector<ZipEntry>> parse_zip_directory(const SourceFile& file,
                                                                const std::string& directory,
                                                                const ZipDirectoryRange& range);

// Reads every local header and sets data_offset. Fails for local headers that contradict the
// central ones, for bytes before the first record, and for records that overlap each other or the
// directory.
[[nodiscard]] Status locate_zip_data(const SourceFile& file, std::uint64_t directory_offset,
                                     std::vector<ZipEntry>& entries);

}  // namespace onnx_external
