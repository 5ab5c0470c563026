// The table of contents of every pickle of torch: which tensors it names, and what they view.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/assembly/torch_tensors.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// In this order: labels the symbols, finds the storages that are nested in the pickle, flattens
// modules to their state dicts, names the tensors that `options` select, and adds those to `part`,
// their storages nested or found by `find`. Edits `pickle`.
// `text_offset`: what places in the pickle count from in the first file of `part`; nothing when the
// text does not lie there as it is (a deflated record).
// Fails as name_tensors and add_tensors do.
[[nodiscard]] Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                                     const OpenOptions& options, const FindStorage& find,
                                     FileContents& part);

}  // namespace onnx_external
