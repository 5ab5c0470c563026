#include "checkpoint/gguf/gguf_checkpoint.h"

#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/gguf_names.h"
#include "checkpoint/gguf/gguf_parts.h"
#include "checkpoint/gguf/gguf_tensors.h"

namespace onnx_external {

Result<FileContents> read_gguf(std::shared_ptr<const SourceFile> file, const OpenOptions& options) {
  const std::string where = file->name();
  if (!options.key.empty() && options.key != ".") {
    return fail(ErrorCode::kNotFound, where + ": GGUF files have no nested dicts; leave the key " +
                                          quote(options.key) + " out");
  }
  TRY_ASSIGN(const auto model, read_gguf_parts(std::move(file)));
  if (!options.stored_parts) {
    auto weights = name_gguf_weights(model.metadata(), model.tensors, model.parts[0].tokens);
    if (weights) {
      TRY_ASSIGN_IN(where, auto contents, list_gguf_weights(model, *weights));
      return contents;
    }
    if (options.selection != Selection::kEverything) {
      return fail_in(where, std::move(weights).error());
    }
  }
  TRY_ASSIGN_IN(where, auto contents, list_stored_gguf(model));
  return contents;
}

}  // namespace onnx_external
