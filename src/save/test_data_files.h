// Reads recorded inputs of a model, and writes them next to the model as
// test_data_set_N/input_K.pb. They are written after the save, in a separate step, because the
// model does not depend on these files.
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

// Decides which recorded tensor is used for which input of a graph, and fills in `inputs.data`. If
// `must_fit` is true, dimensions that contradict the graph are an error (check_test_data()),
// otherwise they are only reported.
[[nodiscard]] Status fit_recordings(std::span<const GraphInput> graph, bool must_fit,
                                    RecordedInputs& inputs);

// Checks in advance whether write_test_data() will succeed. Reads all recorded bytes. Fails with
// kAlreadyExists if the folder of an input set exists, unless overwriting is allowed and the folder
// contains only recorded inputs. Fails with kCorrupt if a recording is damaged, and with
// kUnsupported for a tensor over 2 GiB.
[[nodiscard]] Status check_test_data_files(const RecordedInputs& inputs,
                                           const std::filesystem::path& out_dir,
                                           Overwrite overwrite);

struct TestDataOptions {
  Overwrite overwrite = Overwrite::kRefuse;  // kAllow: all older input sets are removed
  Sync sync = Sync::kFiles;
  // If kOn, files are read back before they are renamed.
  Verification verification = Verification::kOn;
};

// Writes all input sets. Does nothing if there are no inputs. Needs memory for a buffer of 1 MiB.
// Fails with kIo, also if a save is running in the folder, and with kMismatch if the bytes on the
// disk differ from those that were written. Other errors are those of check_test_data_files().
[[nodiscard]] Status write_test_data(const RecordedInputs& inputs,
                                     const std::filesystem::path& out_dir,
                                     const TestDataOptions& options);

}  // namespace onnx_external
