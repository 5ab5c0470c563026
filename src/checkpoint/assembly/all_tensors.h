// The steps from a torch pickle to its tensors, in order; start reading here.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/assembly/torch_tensors.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// In this order: labels the symbols, finds the storages nested in the pickle, flattens modules to
// their state dicts, names the tensors that `options` select, and adds these to `part`; their
// storages are nested or found by `find`. Edits `pickle`. `text_offset` is where the pickle's text
// starts in the first file of `part`, or nullopt if it is not stored there as it is (a deflated
// record). Errors as for name_tensors and add_tensors.
[[nodiscard]] Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                                     const OpenOptions& options, const FindStorage& find,
                                     FileContents& part);

}  // namespace onnx_external
