// Reads recorded inputs, and writes them beside a model: test_data_set_N/input_K.pb. This is a job
// of its own that follows a save, because nothing depends on these files.
//
// Each set is written into a staging folder and renamed, so it is complete or not there. A set that
// it replaces is first renamed into the staging folder, and removed with it. If the job is killed,
// the next save into the output folder removes the staging folder.
#pragma once

#include <filesystem>
#include <span>

#include "onnx_external/result.h"
#include "onnx_external/test_data.h"
#include "onnx_external/writer.h"

namespace onnx_external {

[[nodiscard]] Result<RecordedInputs> open_recordings(std::span<const std::filesystem::path> paths,
                                                     const OpenOptions& options);

// Plans which recorded tensor feeds which input of a graph: fills in `inputs.data`. Dimensions that
// do not fit are errors of check_test_data() if they must fit, and reported otherwise.
[[nodiscard]] Status fit_recordings(std::span<const GraphInput> graph, bool must_fit,
                                    RecordedInputs& inputs);

// Checks beforehand whether write_test_data() will succeed: kAlreadyExists when a set's folder
// exists, unless overwriting is allowed and it holds nothing but recorded inputs; kCorrupt (a
// recording is damaged); kUnsupported (a tensor over 2 GiB). Reads all recorded bytes.
[[nodiscard]] Status check_test_data_files(const RecordedInputs& inputs,
                                           const std::filesystem::path& out_dir,
                                           Overwrite overwrite);

struct TestDataOptions {
  Overwrite overwrite = Overwrite::kRefuse;  // kAllow: all older sets of recorded inputs go
  Sync sync = Sync::kFiles;
  Verification verification = Verification::kOn;  // kOn: files are read back before the rename
};

// Does nothing without inputs. Memory: one buffer of 1 MiB. kIo, also when a save is at work in the
// folder; kMismatch (the disk has other bytes than were written); as check_test_data_files().
[[nodiscard]] Status write_test_data(const RecordedInputs& inputs,
                                     const std::filesystem::path& out_dir,
                                     const TestDataOptions& options);

}  // namespace onnx_external
