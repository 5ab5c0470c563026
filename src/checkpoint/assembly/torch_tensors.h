// From the tensors that a torch pickle declares to views of storages; for every format with
// pickles.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "checkpoint/naming/torch_names.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The index in FileContents::storages of the storage that a declaration names; adds it there when
// it is new. kCorrupt when it is missing or has not the declared size.
using FindStorage = std::function<Result<std::uint32_t>(const TensorDeclaration&)>;

// The tensors that `options` select.
[[nodiscard]] Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options);

// Adds `named` to `part`, each view checked against its storage. A tensor that cannot be read fails
// the call (kUnsupported), or is listed in `refused` with kEverything; kCorrupt names the tensor.
[[nodiscard]] Status add_tensors(const Pickle& pickle, NamedTensors named,
                                 const OpenOptions& options, const FindStorage& find,
                                 FileContents& part);

// kCorrupt when two have one name, as those of two pickles of one archive may.
[[nodiscard]] Status check_unique_names(std::span<const TensorView> tensors);

}  // namespace onnx_external
