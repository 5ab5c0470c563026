#include "onnx/model_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked_math.h"
#include "base/safe_path.h"
#include "base/text.h"

namespace onnx_external {

Result<std::shared_ptr<const SourceFile>> open_external(const Model& model,
                                                        const ExternalTensor& external) {
  auto source = open_beneath(model.source_dir(), external.location);
  if (!source) {
    return fail_in("initializer " + quote(external.name), std::move(source).error());
  }
  if (!range_fits(external.offset, external.length, (*source)->size())) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("initializer {}: {}: {} bytes at {} do not fit into the {} bytes "
                            "of the file",
                            quote(external.name), (*source)->name(), external.length,
                            external.offset, (*source)->size()));
  }
  return source;
}

}  // namespace onnx_external
