#include "checkpoint/torch_zip.h"

#include <utility>

#include "checkpoint/module_names.h"
#include "checkpoint/torch_records.h"
#include "checkpoint/torch_tensors.h"

namespace onnx_external {

Result<CheckpointPart> read_torch_zip(const ZipArchive& zip, const OpenOptions& options) {
  if (auto status = check_version(zip); !status) {
    return fail(std::move(status).error());
  }
  const auto order = read_byte_order(zip);
  if (!order) {
    return fail(order.error());
  }
  auto pickle = read_pickle_record(zip, "data.pkl");
  if (!pickle) {
    return fail(std::move(pickle).error());
  }
  auto status = expand_modules(*pickle, options.selection);
  auto named = status ? name_tensors(*pickle, options)
                      : Result<NamedTensors>(fail(std::move(status).error()));
  if (!named) {
    return fail_in(zip.name(), std::move(named).error());
  }
  CheckpointPart part;
  part.format = "torch-zip";
  part.files.push_back(zip.file());
  RecordStorages storages(zip, *order, part);
  status = add_tensors(
      *pickle, *std::move(named), options,
      [&](const TensorDeclaration& declared) {
        return storages.find("data/" + declared.storage_key, declared.storage_bytes);
      },
      part);
  if (!status) {
    return fail_in(zip.name(), std::move(status).error());
  }
  return part;
}

}  // namespace onnx_external
