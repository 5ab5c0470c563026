#include "onnx/model_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked_math.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {

Result<std::shared_ptr<const SourceFile>> open_external(const Model& model,
                                                        const ExternalTensor& external) {
  TRY_ASSIGN_IN("initializer " + quote(external.name), auto source,
                open_beneath(model.source_dir(), external.location));
  if (!range_fits(external.offset, external.length, source->size())) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("initializer {}: {}: {} bytes at {} do not fit into the {} bytes "
                            "of the file",
                            quote(external.name), source->name(), external.length, external.offset,
                            source->size()));
  }
  return source;
}

}  // namespace onnx_external
