// Turns the tensors that a torch pickle declares into views of storages, for every format with
// pickles. add_all_tensors() has the steps in order; start reading there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "checkpoint/naming/torch_names.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the index in FileContents::storages of the storage that a declaration names, and adds it
// there if it is new. kCorrupt if it is missing or does not have the declared size.
using FindStorage = std::function<Result<std::uint32_t>(const TensorDeclaration&)>;

// The tensors that `options` select.
[[nodiscard]] Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options);

// Adds `named` to `part` and checks each view against its storage. If a tensor cannot be read, the
// call fails (kUnsupported) or, with kEverything, lists it in `refused`. kCorrupt names the tensor.
[[nodiscard]] Status add_tensors(const Pickle& pickle, NamedTensors named,
                                 const OpenOptions& options, const FindStorage& find,
                                 FileContents& part);

// kCorrupt if two tensors have the same name, as may happen with two pickles of one archive.
[[nodiscard]] Status check_unique_names(std::span<const TensorView> tensors);

// In this order: labels the symbols, finds the storages nested in the pickle, flattens modules to
// their state dicts, names the tensors that `options` select, and adds these to `part`; their
// storages are nested or found by `find`. Edits `pickle`. `text_offset` is where the pickle's text
// starts in the first file of `part`, or nullopt if it is not stored there as it is (a deflated
// record). Errors as for name_tensors and add_tensors.
[[nodiscard]] Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                                     const OpenOptions& options, const FindStorage& find,
                                     FileContents& part);

}  // namespace onnx_external
