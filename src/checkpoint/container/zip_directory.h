// The two halves of reading a zip file's directory; ZipArchive puts them together.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/container/zip_archive.h"

namespace onnx_external {

// The place of the central directory, according to the end records.
struct ZipDirectoryRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t entries = 0;
  std::uint64_t bytes_behind = 0;  // that follow the archive and are not its comment
};

// Finds the end record (and its zip64 form) and checks that the directory ends where they begin.
[[nodiscard]] Result<ZipDirectoryRange> find_zip_directory(const SourceFile& file);

// One entry per central header, in directory order, still without data_offset. `directory` holds
// the names and must outlive the entries.
[[nodiscard]] Result<std::vector<ZipEntry>> parse_zip_directory(const SourceFile& file,
                                                                const std::string& directory,
                                                                const ZipDirectoryRange& range);

// Reads every local header, fills in data_offset, and refuses headers that contradict the central
// ones, bytes before the first record, and records that overlap each other or the directory.
[[nodiscard]] Status locate_zip_data(const SourceFile& file, std::uint64_t directory_offset,
                                     std::vector<ZipEntry>& entries);

}  // namespace onnx_external
