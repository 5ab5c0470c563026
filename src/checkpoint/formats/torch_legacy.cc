#include "checkpoint/formats/torch_legacy.h"

#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/torch/legacy_file.h"

namespace onnx_external {

Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                       const OpenOptions& options) {
  const std::string where = file->name();
  PickleStream stream(*file);
  TRY_ASSIGN_IN(where, auto legacy, read_legacy_file(stream));
  FileContents part;
  part.format = "torch-legacy";
  part.facts.pickle_protocol = legacy.object.protocol();
  part.files.push_back(std::move(file));
  BlockStorages storages(legacy.blocks, part);
  const auto find = [&](const TensorDeclaration& declared) { return storages.find(declared); };
  TRY_IN(where, add_all_tensors(legacy.object, 0, options, find, part));
  return part;
}

}  // namespace onnx_external
