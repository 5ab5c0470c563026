// Converts the tensors that a torch pickle declares to views of storages, for all formats that
// contain pickles. add_all_tensors() calls all other functions in order.
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

// A function that returns the index in FileContents::storages of the storage that a declaration
// refers to, after adding the storage if necessary. It fails with kCorrupt if the checkpoint lacks
// the storage, or if its size differs from the declared size.
using FindStorage = std::function<Result<std::uint32_t>(const TensorDeclaration&)>;

// Returns the tensors that `options` select, with their names.
[[nodiscard]] Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options);

// Adds `named` to `part` and checks each view against its storage. If a tensor cannot be read, the
// call fails with kUnsupported or, with kEverything, the tensor is listed in `refused`. Fails with
// kCorrupt if a declaration is invalid; the message names the tensor.
[[nodiscard]] Status add_tensors(const Pickle& pickle, NamedTensors named,
                                 const OpenOptions& options, const FindStorage& find,
                                 FileContents& part);

// Fails with kCorrupt if two tensors have the same name, which is possible if an archive has two
// pickles.
[[nodiscard]] Status check_unique_names(std::span<const TensorView> tensors);

// Adds the tensors that `options` select to `part`. The steps are: label the symbols, resolve
// storages nested in the pickle, flatten modules to their state dicts, and name and add the
// tensors. Storages that are not nested are found by `find`. Modifies `pickle`. `text_offset` is
// the offset of the pickle in the first file of `part`, or nullopt if that file does not contain
// its bytes unchanged, for example because the record is deflated. Errors are those of
// name_tensors() and add_tensors().
[[nodiscard]] Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                                     const OpenOptions& options, const FindStorage& find,
                                     FileContents& part);

}  // namespace onnx_external
