#include "checkpoint/torch_legacy.h"

#include <utility>

#include "checkpoint/legacy_file.h"
#include "checkpoint/nested_storages.h"

namespace onnx_external {

Result<CheckpointPart> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                         const OpenOptions& options) {
  const std::string where = file->name();
  PickleStream stream(*file);
  auto legacy = read_legacy_file(stream);
  if (!legacy) {
    return fail_in(where, std::move(legacy).error());
  }
  CheckpointPart part;
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
