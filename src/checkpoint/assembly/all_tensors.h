// Turns the tensors that a torch pickle declares into views of storages, for all formats that
// contain pickles. Start reading at add_all_tensors(), which calls the steps in order.
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

// Returns the index in FileContents::storages of the storage that a declaration names. A storage
// that is not listed yet is added. Fails with kCorrupt if the checkpoint lacks the storage, or if
// its size is not the declared one.
using FindStorage = std::function<Result<std::uint32_t>(const TensorDeclaration&)>;

// Returns the tensors that `options` select, with their names.
[[nodiscard]] Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options);

// Adds `named` to `part` and checks each view against its storage. A tensor that cannot be read
// makes the call fail (kUnsupported) or, with kEverything, is listed in `refused`. kCorrupt names
// the tensor.
[[nodiscard]] Status add_tensors(const Pickle& pickle, NamedTensors named,
                                 const OpenOptions& options, const FindStorage& find,
                                 FileContents& part);

// kCorrupt if two tensors have the same name, which can happen if an archive has two pickles.
[[nodiscard]] Status check_unique_names(std::span<const TensorView> tensors);

// Labels the symbols, resolves storages nested in the pickle, flattens modules to their state
// dicts, names the tensors that `options` select, and adds these tensors to `part`, in this order.
// Their storages are nested ones, or those that `find` returns. Edits `pickle`. `text_offset` is
// the offset of the pickle's text in the first file of `part`; nullopt if that file does not
// contain the text as it is, for example because the record is deflated. Errors as for name_tensors
// and add_tensors.
[[nodiscard]] Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                                     const OpenOptions& options, const FindStorage& find,
                                     FileContents& part);

}  // namespace onnx_external
