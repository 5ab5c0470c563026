// Checks that models that were saved together as a set still come from the same save.
#pragma once

#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "verify/model_file.h"

namespace onnx_external {

// Returns the set in the manifest of the model `name`; empty if the model has no manifest or
// belongs to no set.
[[nodiscard]] std::vector<SetMember> set_of(const Directory& folder, const std::string& name);

// Reports models of the set that come from a different save than this model: models that a killed
// save has not put in place yet, according to its record, and models whose manifest lists another
// version of this model. A model that was replaced without the others, moved or removed is not a
// finding. Reports nothing while a save is running in the folder. `manifest` may be null.
void check_set(const ModelFile& model, const Manifest* manifest, std::vector<Finding>& findings);

}  // namespace onnx_external
