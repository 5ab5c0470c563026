#include "checkpoint/zip_checkpoint.h"

#include <utility>

#include "base/text.h"
#include "checkpoint/exported_program.h"
#include "checkpoint/torch_script.h"
#include "checkpoint/torch_zip.h"
#include "checkpoint/zip_archive.h"

namespace onnx_external {
namespace {

Error unsupported(const ZipArchive& zip, const std::string& what) {
  return {ErrorCode::kUnsupported, zip.name() + ": " + what};
}

// A zip file that is none of torch's, or one that cannot be read; says which.
Error refusal(const ZipArchive& zip) {
  if (zip.find("model.json") != nullptr) {
    return unsupported(zip,
                       "a TorchScript archive of torch 1.0 to 1.2 (model.json); load it with "
                       "torch.jit.load and save it again with a newer torch");
  }
  if (zip.find(".data/extern_modules") != nullptr) {
    return unsupported(zip,
                       "a torch.package archive, which holds Python code; load it and save the "
                       "model's state_dict() with torch.save");
  }
  if (zip.root().empty()) {
    return unsupported(zip, "record " + quote(zip.entries().empty() ? "" : zip.entries()[0].name) +
                                ": lies in no folder; this zip file is not a PyTorch checkpoint");
  }
  return unsupported(zip,
                     "this zip file is not a PyTorch checkpoint: it has no record 'data.pkl' in "
                     "its folder");
}

}  // namespace

Result<CheckpointPart> read_zip_checkpoint(std::shared_ptr<const SourceFile> file,
                                           const OpenOptions& options) {
  const auto zip = ZipArchive::open(std::move(file));
  if (!zip) {
    return fail(zip.error());
  }
  if (is_exported_program(*zip)) {
    return read_exported_program(*zip, options);
  }
  const bool has_pickle = !zip->root().empty() && zip->find("data.pkl") != nullptr;
  if (has_pickle && zip->find("constants.pkl") != nullptr) {
    return read_torch_script(*zip, options);
  }
  if (has_pickle) {
    return read_torch_zip(*zip, options);
  }
  return fail(refusal(*zip));
}

}  // namespace onnx_external
