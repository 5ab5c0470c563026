// Publishes a save: writes the manifests, renames the data, then the models, and removes the data
// of the replaced models.
//
// The models of a set are renamed one by one. The rename of the first model is the commit point; if
// the save is killed after it, the next save finishes the renames (save/recovery.h). Replaced data
// is removed file by file, according to the list in the record (save/old_data.h).
#pragma once

#include <span>
#include <string>

#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/identity.h"
#include "save/transaction.h"

namespace onnx_external {

// Writes the manifests, then makes all names in the staging folder durable. `manifests` are in the
// order of the models. Requires: model and data files are complete, and were synced by the code
// that wrote them.
[[nodiscard]] Status write_manifests(const Transaction& transaction,
                                     std::span<const std::string> manifests);

// Publishes the save, and returns StagedSave::kept_data(). `models` has the sizes and CRC-32s of
// the staged model files. If it fails, nothing is visible, with two exceptions that the message
// states. If the folder cannot be synced after the model was renamed, the data of both the old and
// the new model stays. If the first model of a set was renamed and another model cannot be renamed,
// the next save continues.
[[nodiscard]] Result<KeptData> publish(Transaction& transaction,
                                       std::span<const ModelIdentity> models);

}  // namespace onnx_external
