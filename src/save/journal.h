// The journal of a save records which parts are written, so that the same save can be resumed after
// a kill.
//
// It is a file in the staging folder, with lines of fixed length:
//
//   onnx-external-journal 1 <64 hex digits: the job>
//   <part, 8 hex digits> <CRC-32 of the part, 8> <CRC-32 of this line so far, 8>
//
// It is never synced: a line is only a claim, and the bytes are read again before it is believed
// (save/resume.h). So a torn, stale or forged journal only causes parts to be written again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/output_file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

// No model and no data file can have this name: check_output_names() refuses the prefix.
inline constexpr std::string_view kJournalName = ".save-external.journal";

// Lines wait until they stand for so many bytes of data. Measured with 20,000 tensors of 10 KB: a
// call for each line would take 3 % more time.
inline constexpr std::uint64_t kJournaledBytes = std::uint64_t{256} << 10;

// Index = SavePlan::parts: the CRC-32 of the part where it is written.
using WrittenParts = std::vector<std::optional<std::uint32_t>>;

// Names the bytes of all data files of a plan, as 64 hex digits: a hash of the plan and of the
// sources, each with its stamp (SourceFile::stamp). Two saves have the same name only if they write
// the same files. kIo; errors of opening the model's own data.
[[nodiscard]] Result<std::string> name_job(const SavePlan& plan, const SourceModels& models,
                                           const Checkpoint& checkpoint);

class Journal {
 public:
  // Replaces an earlier journal by one with the lines for `written`.
  [[nodiscard]] static Result<Journal> start(const Directory& staging, std::string_view job,
                                             const WrittenParts& written);

  // To be called once all bytes of the part are in its file. Thread-safe.
  [[nodiscard]] Status add(std::uint32_t part, std::uint32_t crc32, std::uint64_t bytes);

 private:
  explicit Journal(OutputFile file);
  OutputFile file_;
  std::unique_ptr<std::mutex> mutex_;
  std::uint64_t end_ = 0;
  std::string waiting_;
  std::uint64_t waiting_bytes_ = 0;
};

// What the journal in `staging` claims; nothing if there is none, if it is of another job, or if it
// is no regular file of this user. Damaged lines claim nothing.
[[nodiscard]] std::optional<WrittenParts> read_journal(const Directory& staging,
                                                       std::string_view job, std::size_t parts);

// True when that journal is there and names this job.
[[nodiscard]] bool has_journal_of(const Directory& staging, std::string_view job);

}  // namespace onnx_external
