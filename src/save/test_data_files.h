// Reads recorded inputs of a model, and writes them next to the model as
// test_data_set_N/input_K.pb. This happens after the save, and separately from it, because nothing
// depends on these files.
//
// Each input set is written to a staging folder and then renamed, so that it is either complete or
// absent. An older set that it replaces is first renamed into the staging folder, and removed with
// it. If the process is killed, the next save into the output folder removes the staging folder.
#pragma once

#include <filesystem>
#include <span>

#include "onnx_external/result.h"
#include "onnx_external/test_data.h"
#include "onnx_external/writer.h"

namespace onnx_external {

[[nodiscard]] Result<RecordedInputs> open_recordings(std::span<const std::filesystem::path> paths,
                                                     const OpenOptions& options);

// Decides which recorded tensor is used for which input of a graph: fills in `inputs.data`.
// Dimensions that do not fit are errors of check_test_data() if `must_fit`, and otherwise reported.
[[nodiscard]] Status fit_recordings(std::span<const GraphInput> graph, bool must_fit,
                                    RecordedInputs& inputs);

// Checks beforehand whether write_test_data() will succeed. kAlreadyExists if the folder of an
// input set exists, unless overwriting is allowed and the folder contains only recorded inputs;
// kCorrupt (a recording is damaged); kUnsupported (a tensor over 2 GiB). Reads all recorded bytes.
[[nodiscard]] Status check_test_data_files(const RecordedInputs& inputs,
                                           const std::filesystem::path& out_dir,
                                           Overwrite overwrite);

struct TestDataOptions {
  Overwrite overwrite = Overwrite::kRefuse;  // kAllow: all older input sets are removed
  Sync sync = Sync::kFiles;
  // If kOn, files are read back before they are renamed.
  Verification verification = Verification::kOn;
};

// Does nothing if there are no inputs. Memory: one buffer of 1 MiB. kIo, also if a save is running
// in the folder; kMismatch (the bytes on the disk are not those that were written); errors as for
// check_test_data_files().
[[nodiscard]] Status write_test_data(const RecordedInputs& inputs,
                                     const std::filesystem::path& out_dir,
                                     const TestDataOptions& options);

}  // namespace onnx_external
