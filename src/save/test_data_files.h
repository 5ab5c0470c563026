// Writes test_data_set_N/input_K.pb into the staging folder of a save.
#pragma once

#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/test_data.h"
#include "save/manifest.h"
#include "save/publish.h"

namespace onnx_external {

// Returns what the manifest says of them. Memory: one buffer of 1 MiB. kIo, kCorrupt (a recording
// is damaged or changed meanwhile), kAlreadyExists, kUnsupported (a tensor over 2 GiB).
[[nodiscard]] Result<std::vector<ManifestFile>> write_test_data(const RecordedInputs& inputs,
                                                                Transaction& transaction);

}  // namespace onnx_external
