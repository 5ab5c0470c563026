// The steps of reading a zip file's central directory, which ZipArchive::open() calls in turn: find
// it, parse it, and locate the data of its records.
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

// Finds the end record (or its zip64 form) and checks that the directory ends where the end records
// begin.
[[nodiscard]] Result<ZipDirectoryRange> find_zip_directory(const SourceFile& file);

// Returns one entry per central header, in directory order. data_offset is not set yet. `directory`
// holds the names and must outlive the entries.
[[nodiscard]] Result<std::vector<ZipEntry>> parse_zip_directory(const SourceFile& file,
                                                                const std::string& directory,
                                                                const ZipDirectoryRange& range);

// Reads every local header and sets data_offset. Rejects local headers that contradict the central
// ones, bytes before the first record, and records that overlap each other or the directory.
[[nodiscard]] Status locate_zip_data(const SourceFile& file, std::uint64_t directory_offset,
                                     std::vector<ZipEntry>& entries);

}  // namespace onnx_external
