// Names jobs, so that a killed save is resumed only by the same save.
#pragma once

#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/source_models.h"

namespace onnx_external {

// SavePlan::job of a plan that is otherwise complete, as 64 hex digits: a hash of the plan and of
// the sources, each with its stamp (SourceFile::stamp). Two saves have the same name only if they
// write the same files; of kLink, which writes none, only the checkpoint's files count. kIo; errors
// of opening the model's own data.
[[nodiscard]] Result<std::string> name_job(const SavePlan& plan, const SourceModels& models,
                                           const Checkpoint& checkpoint);

}  // namespace onnx_external
