// The record of a save: a file that tells a later save what a killed save had done and was about to
// do.
//
// It lies in the staging folder and grows line by line. Each line is a JSON object, and its last
// member is the CRC-32 of the text before it:
//
//   {"record": 2, "job": "<64 hex digits>", "check": "..."}
//   {"part": 7, "crc32": "1a2b3c4d", "check": "..."}
//   {"publish": {...}, "check": "..."}
//
// The first line has the version of the form and the name of the job (save/plan_sources.h; empty: a
// job that is never resumed). Each range of the plan gets a line once it is written. These lines
// are not synced: they are claims, and the bytes are read again before they are believed
// (save/written_ranges.h). The last line is a Publication: all that the save renames and removes.
// It is synced before anything is renamed into the output folder, so if it is missing or damaged,
// nothing was renamed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/output_file.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/identity.h"
#include "save/old_data.h"
#include "save/written_ranges.h"

namespace onnx_external {

// No model and no data file can have this name: check_output_names() refuses the prefix.
inline constexpr std::string_view kRecordName = ".save-external.record";
inline constexpr std::uint64_t kRecordVersion = 2;

// Lines are written once they describe this many bytes of data. Measured with 20,000 tensors of 10
// KB: a call for each line would take 3 % more time.
inline constexpr std::uint64_t kRecordedBytes = std::uint64_t{256} << 10;

struct PublishedModel {
  std::string name;
  ModelIdentity model;                    // the new one
  ListedFile manifest;                    // its manifest
  std::optional<ModelIdentity> replaced;  // the old one, if there is one
  std::vector<ListedData> old_data;       // the old one's

  friend bool operator==(const PublishedModel&, const PublishedModel&) = default;
};

// The steps of a save in the output folder: it renames first `entries`, then the models, in this
// order. The rename of the first model commits the save. Then it removes the old data, or, if it
// was killed before, its own.
struct Publication {
  Overwrite overwrite = Overwrite::kRefuse;
  std::vector<std::string> entries;  // data files and manifests, or the folders that have them
  std::vector<ListedFile> files;     // the data files of all models, as locations
  std::vector<PublishedModel> models;

  friend bool operator==(const Publication&, const Publication&) = default;
};

struct SaveRecord {
  std::string job;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;  // number and CRC-32
  std::optional<Publication> publication;

  // The ranges that the record claims to be written, of a plan with `count` ranges.
  [[nodiscard]] WrittenRanges written(std::size_t count) const;
};

// Returns nullopt if there is no regular file of that name, or its first line is damaged.
// kUnsupported for a record of another version; other errors when it cannot be read. Ignores other
// damaged lines.
[[nodiscard]] Result<std::optional<SaveRecord>> read_record(const Directory& staging);

// Writes the record of a save.
class RecordWriter {
 public:
  // Replaces an earlier record by one with lines for `written`.
  [[nodiscard]] static Result<RecordWriter> start(const Directory& staging, std::string_view job,
                                                  const WrittenRanges& written);

  // Records a range. Call it once all bytes of the range are in its file. Thread-safe.
  [[nodiscard]] Status add(std::uint32_t range, std::uint32_t crc32, std::uint64_t bytes);

  // The last line. With Sync::kFiles it is on the disk when this returns, if the names in the
  // staging folder are.
  [[nodiscard]] Status publish(const Publication& publication, Sync sync);

 private:
  explicit RecordWriter(OutputFile file);
  [[nodiscard]] Status write_waiting();

  OutputFile file_;
  std::unique_ptr<std::mutex> mutex_;
  std::uint64_t end_ = 0;
  std::string waiting_;
  std::uint64_t waiting_bytes_ = 0;
};

}  // namespace onnx_external
