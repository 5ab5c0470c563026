// Checks whether models that were saved together as a set are still from the same save.
#pragma once

#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "verify/model_file.h"

namespace onnx_external {

// Returns the set that the manifest of the model `name` states. It is empty if the model has no
// manifest or does not belong to a set.
[[nodiscard]] std::vector<SetMember> set_of(const Directory& folder, const std::string& name);

// Adds findings for models of the set that are from a different save than this model. These are
// models that a killed save has not yet published, according to its record, and models whose
// manifest lists another version of this model. A model that was replaced without the others, moved
// or removed is not a finding. Adds nothing while a save is running in the folder. `manifest` may
// be null.
void check_set(const ModelFile& model, const Manifest* manifest, std::vector<Finding>& findings);

}  // namespace onnx_external
