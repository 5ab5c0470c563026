#include "checkpoint/formats/torch_legacy.h"

#include <utility>

#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/torch/legacy_file.h"

namespace onnx_external {

Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                       const OpenOptions& options) {
  const std::string where = file->name();
  PickleStream stream(*file);
  auto legacy = read_legacy_file(stream);
  if (!legacy) {
    return fail_in(where, std::move(legacy).error());
  }
  FileContents part;
  part.format = "torch-legacy";
  part.facts.pickle_protocol = legacy->object.protocol();
  part.files.push_back(std::move(file));
  BlockStorages storages(legacy->blocks, part);
  auto status = add_all_tensors(
      legacy->object, 0, options,
      [&](const TensorDeclaration& declared) { return storages.find(declared); }, part);
  if (!status) {
    return fail_in(where, std::move(status).error());
  }
  return part;
}

}  // namespace onnx_external
