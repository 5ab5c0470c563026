// Whether the models that were saved as a set are still of one save.
#pragma once

#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "verify/model_file.h"

namespace onnx_external {

// The set that a model in the folder says it belongs to; empty if it has no manifest of one.
[[nodiscard]] std::vector<SetMember> set_of(const Directory& folder, const std::string& name);

// Reports models of the set that do not belong to this one: those that a save which was cut off has
// not put in place yet, as its note says, and those whose manifest says that they belong to a set
// with another state of this model. A model that was replaced alone, moved or removed is no
// finding. Nothing is reported while a save is at work in the folder. `manifest` may be null.
void check_set(const ModelFile& model, const Manifest* manifest, std::vector<Finding>& findings);

}  // namespace onnx_external
