#include "save/test_data_files.h"

#include <algorithm>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/directory.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/read_back.h"
#include "base/read_step.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/identity.h"
#include "save/output_folder.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

// Writes one file sequentially.
class Appender {
 public:
  explicit Appender(OutputFile& file) : file_(file) {}

  [[nodiscard]] Status append(std::span<const std::byte> bytes) {
    crc_.update(bytes);
    auto status = file_.write(written_, bytes);
    written_ += bytes.size();
    return status;
  }
  [[nodiscard]] std::uint64_t written() const { return written_; }
  [[nodiscard]] std::uint32_t crc32() const { return crc_.value(); }

 private:
  OutputFile& file_;
  Crc32 crc_;
  std::uint64_t written_ = 0;
};

Status append_tensor(const Checkpoint& recording, std::size_t tensor, IoBuffer& buffer,
                     Appender& out) {
  TRY(recording.check_storage(recording.tensors()[tensor].storage));
  return for_each_step(recording.nbytes(tensor), buffer,
                       [&](std::uint64_t first, std::span<std::byte> bytes) -> Status {
                         TRY(recording.read(tensor, first, bytes));
                         return out.append(bytes);
                       });
}

// A written file, and the bytes that it must contain.
struct WrittenInput {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

Result<WrittenInput> write_input(const TestInput& input, const Checkpoint& recording,
                                 const Directory& folder, std::string name, Sync sync) {
  TRY_ASSIGN(const auto header, test_input_header(input, recording.nbytes(input.tensor)));
  TRY_ASSIGN(auto file, OutputFile::create(folder, name));
  IoBuffer buffer;
  Appender out(file);
  TRY(out.append(std::as_bytes(std::span(header))));
  TRY(append_tensor(recording, input.tensor, buffer, out));
  TRY(sync == Sync::kFiles ? file.sync() : Status());
  file.drop_cache();
  TRY(file.close());
  return WrittenInput{std::move(name), out.written(), out.crc32()};
}

Status read_back(const Directory& folder, const WrittenInput& written) {
  TRY_ASSIGN(const auto file, open_plain(folder, written.name));
  TRY_ASSIGN(const auto crc, range_crc32(*file, 0, written.bytes));
  return crc == written.crc32 ? Status()
                              : fail(ErrorCode::kMismatch,
                                     file->name() + ": its content differs from what was written");
}

Status write_set(const RecordedInputs& inputs, std::size_t set, const Directory& staging,
                 const TestDataOptions& options) {
  const std::string name = test_set_name(set);
  TRY(staging.make_folder(name, kPublishedFolderMode));
  TRY_ASSIGN(const auto folder, staging.open_folder(name));
  const std::vector<TestInput>& tensors = inputs.data.sets[set].inputs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TRY_ASSIGN_IN("recorded input " + quote(tensors[i].recorded), const auto written,
                  write_input(tensors[i], inputs.recordings[tensors[i].recording], folder,
                              test_input_name(i), options.sync));
    TRY(options.verification == Verification::kOn ? read_back(folder, written) : Status());
  }
  return sync_folder(folder, options.sync);
}

bool holds_only_inputs(const Directory& out, const std::string& name) {
  const auto folder = out.open_folder(name);
  const auto entries = folder ? folder->entries() : fail(folder.error());
  return entries && std::all_of(entries->begin(), entries->end(), [&](const std::string& entry) {
           const auto kind = folder->kind_of(entry);
           return kind && *kind == EntryKind::kFile && is_test_input_name(entry);
         });
}

Status check_sets(const RecordedInputs& inputs, const Directory& out, Overwrite overwrite) {
  for (std::size_t set = 0; set < inputs.data.sets.size(); ++set) {
    const std::string name = test_set_name(set);
    TRY_ASSIGN(const auto kind, out.kind_of(name));
    if (kind && overwrite == Overwrite::kRefuse) {
      return fail_with(ErrorCode::kAlreadyExists, out.child(name) + ": exists",
                       {{RemedyOption::kOverwrite, "", "replaces it"}});
    }
    if (kind && !holds_only_inputs(out, name)) {
      return fail(
          ErrorCode::kAlreadyExists,
          out.child(name) + ": is not a folder with only recorded inputs; move it elsewhere");
    }
  }
  return {};
}

// The name that a replaced set has in the staging folder.
std::string replaced_name(const std::string& set) {
  return "replaced." + set;
}

// Puts a set in place. After an error the older one is there again.
Status publish_set(const Directory& staging, const Directory& out, const std::string& set) {
  const Status moved = move_entry(out, set, staging, replaced_name(set));
  if (!moved && moved.error().code != ErrorCode::kNotFound) {
    return moved;
  }
  Status placed = move_entry(staging, set, out, set);
  if (!placed && placed.error().code != ErrorCode::kAlreadyExists) {
    (void)out.remove_tree(set);  // a part of it
  }
  if (!placed && moved) {
    (void)move_entry(staging, replaced_name(set), out, set);
  }
  return placed;
}

Status publish_sets(const RecordedInputs& inputs, const Directory& staging, const Directory& out,
                    const TestDataOptions& options) {
  TRY(check_sets(inputs, out, options.overwrite));
  std::set<std::string> placed;
  for (std::size_t set = 0; set < inputs.data.sets.size(); ++set) {
    TRY(publish_set(staging, out, test_set_name(set)));
    placed.insert(test_set_name(set));
  }
  TRY_ASSIGN(const auto entries, out.entries());
  for (const std::string& entry : entries) {
    if (options.overwrite == Overwrite::kAllow && is_test_set_name(entry) &&
        !placed.contains(entry) && holds_only_inputs(out, entry)) {
      TRY(move_entry(out, entry, staging, replaced_name(entry)));
    }
  }
  return sync_folder(out, options.sync);
}

// Removes the staging folder whatever happens.
class StagingGuard {
 public:
  StagingGuard(const Directory& out, std::string name) : out_(out), name_(std::move(name)) {}
  StagingGuard(const StagingGuard&) = delete;
  StagingGuard& operator=(const StagingGuard&) = delete;
  ~StagingGuard() {
    for (int attempt = 0; attempt < 2; ++attempt) {  // one allocation that fails leaves nothing
      try {
        (void)out_.remove_tree(name_);
        return;
      } catch (const std::bad_alloc&) {
        continue;  // if it fails twice, the next save removes the folder
      }
    }
  }

 private:
  const Directory& out_;
  std::string name_;
};

Status write_sets(const RecordedInputs& inputs, const Directory& out,
                  const TestDataOptions& options) {
  TRY_ASSIGN(const auto staging, random_staging_name());
  const StagingGuard guard(out, staging);
  TRY(out.make_folder(staging, kStagingMode));
  TRY_ASSIGN(const auto folder, out.open_folder(staging));
  for (std::size_t set = 0; set < inputs.data.sets.size(); ++set) {
    TRY(write_set(inputs, set, folder, options));
  }
  for (const Checkpoint& recording : inputs.recordings) {
    TRY(recording.check_unchanged());
  }
  TRY(sync_folder(folder, options.sync));
  return publish_sets(inputs, folder, out, options);
}

}  // namespace

Result<RecordedInputs> open_recordings(std::span<const std::filesystem::path> paths,
                                       const OpenOptions& options) {
  RecordedInputs inputs;
  for (const std::filesystem::path& path : paths) {
    TRY_ASSIGN(auto recording, open_recording(path, options));
    inputs.recordings.push_back(std::move(recording));
  }
  return inputs;
}

Status fit_recordings(std::span<const GraphInput> graph, bool must_fit, RecordedInputs& inputs) {
  TRY_ASSIGN(inputs.data, plan_test_data(graph, inputs.recordings));
  return must_fit ? check_test_data(graph, inputs.data) : Status();
}

Status check_test_data_files(const RecordedInputs& inputs, const std::filesystem::path& out_dir,
                             Overwrite overwrite) {
  const auto out = Directory::open(out_dir);
  if (out) {
    TRY(check_sets(inputs, *out, overwrite));
  }
  for (const TestDataSet& set : inputs.data.sets) {
    for (const TestInput& input : set.inputs) {
      const Checkpoint& recording = inputs.recordings[input.recording];
      TRY_IN("recorded input " + quote(input.recorded),
             test_input_header(input, recording.nbytes(input.tensor)));
      TRY_IN("recorded input " + quote(input.recorded),
             recording.check_storage(recording.tensors()[input.tensor].storage));
    }
  }
  return {};
}

Status write_test_data(const RecordedInputs& inputs, const std::filesystem::path& out_dir,
                       const TestDataOptions& options) {
  if (inputs.data.sets.empty()) {
    return {};
  }
  TRY_ASSIGN(const auto out, Directory::open(out_dir));
  if (out.try_lock() == false) {
    return fail(
        ErrorCode::kBusy,
        out_dir.string() + ": another save is writing to this folder; wait until it has finished");
  }
  return write_sets(inputs, out, options);
}

}  // namespace onnx_external
