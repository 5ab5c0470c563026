// Reads and writes the record of a save. From this file, if the save is killed, a later save learns
// which steps were done and which were about to be done.
//
// The record is in the staging folder and grows line by line. Each line is a JSON object whose last
// member is the CRC-32 of the text before it:
//
//   {"record": 2, "job": "<64 hex digits>", "check": "..."}
//   {"part": 7, "crc32": "1a2b3c4d", "check": "..."}
//   {"publish": {...}, "check": "..."}
//
// The first line has the version of the format and the hash of the job (jobs/plan_models.h; empty
// for a job that is never resumed). A line is added for each range of the plan once it is written.
// Because these lines are not synced, they may be wrong, and the bytes of a range are read again
// before the range is used (save/written_ranges.h). The last line is a Publication, which lists
// everything that the save renames and removes. It is synced before anything is renamed into the
// output folder; if it is missing or damaged, nothing was renamed.
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

// The name of the record. Models and data files cannot have this name, because check_output_names()
// rejects the prefix.
inline constexpr std::string_view kRecordName = ".save-external.record";
inline constexpr std::uint64_t kRecordVersion = 2;

// Lines are collected, and written when they are for this many bytes of data. With 20,000 tensors
// of 10 KB, one system call per line took 3 % more time.
inline constexpr std::uint64_t kRecordedBytes = std::uint64_t{256} << 10;

struct PublishedModel {
  std::string name;
  ModelIdentity model;                    // the new model
  ListedFile manifest;                    // the manifest of the new model
  std::optional<ModelIdentity> replaced;  // the old model, if there is one
  std::vector<ListedData> old_data;       // the data of the old model

  friend bool operator==(const PublishedModel&, const PublishedModel&) = default;
};

// Lists everything that a save renames and removes in the output folder. The save renames first
// `entries`, then the models, in this order. The rename of the first model commits the save.
// Afterwards the old data is removed. If the save was killed before the commit, the new data is
// removed instead.
struct Publication {
  Overwrite overwrite = Overwrite::kRefuse;
  std::vector<std::string> entries;  // data files and manifests, or the folders that contain them
  std::vector<ListedFile> files;     // locations of the data files of all models
  std::vector<PublishedModel> models;

  friend bool operator==(const Publication&, const Publication&) = default;
};

struct SaveRecord {
  std::string job;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;  // index and CRC-32
  std::optional<Publication> publication;

  // Returns the ranges that have been written according to the record, for a plan with `count`
  // ranges.
  [[nodiscard]] WrittenRanges written(std::size_t count) const;
};

// Reads the record in a staging folder. Returns nullopt if there is no regular file of that name,
// or if its first line is damaged. Other damaged lines are ignored. Fails with kUnsupported for a
// record of another version, and with other errors if the record cannot be read.
[[nodiscard]] Result<std::optional<SaveRecord>> read_record(const Directory& staging);

// Writes the record of a save.
class RecordWriter {
 public:
  // Starts a record with lines for `written`, and replaces any earlier record.
  [[nodiscard]] static Result<RecordWriter> start(const Directory& staging, std::string_view job,
                                                  const WrittenRanges& written);

  // Records a range. Call it once all bytes of the range are in its file. Thread-safe.
  [[nodiscard]] Status add(std::uint32_t range, std::uint32_t crc32, std::uint64_t bytes);

  // Writes the last line. With Sync::kFiles, the line is on the disk when the call returns,
  // provided that the names in the staging folder are on the disk.
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
