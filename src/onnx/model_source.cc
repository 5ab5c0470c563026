#include "onnx/model_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked_math.h"
#include "base/foreign_format.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"

namespace onnx_external {

Result<std::shared_ptr<const SourceFile>> open_external(const Model& model,
                                                        const ExternalTensor& external) {
  const std::string where = "initializer " + quote(external.name);
  TRY_IN(where, data_location(external.location));
  TRY_ASSIGN_IN(where, const auto folder, Directory::open(model.source_dir()));
  auto source = open_data_file(folder, external.location);
  if (!source && source.error().code == ErrorCode::kNotFound && model.path().empty()) {
    return fail(ErrorCode::kNotFound,
                where + ": " + source.error().message +
                    "; the model was passed in memory, so the folder of its data is not known: "
                    "give that folder (oe.Layout(base_dir=) in Python, SaveOptions::source_dir), "
                    "pass the model's path, or load the model with its data");
  }
  if (!source) {
    return fail_in(where, std::move(source).error());
  }
  if (!range_fits(external.offset, external.length, (*source)->size())) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("initializer {}: {}: {} bytes at {} do not fit into the {} bytes "
                            "of the file{}",
                            quote(external.name), (*source)->name(), external.length,
                            external.offset, (*source)->size(), short_data_text(**source)));
  }
  return source;
}

}  // namespace onnx_external
