#include "checkpoint/formats/zip_checkpoint.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container/zip_archive.h"
#include "checkpoint/formats/exported_program.h"
#include "checkpoint/formats/torch_files.h"
#include "checkpoint/formats/torch_script.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {
namespace {

constexpr std::size_t kShownRecords = 3;

Error unsupported(const ZipArchive& zip, const std::string& what) {
  return {ErrorCode::kUnsupported, zip.name() + ": " + what};
}

// The error for a zip file that is not torch's, or is one of torch's that cannot be read.
Error refusal(const ZipArchive& zip) {
  if (zip.find("model.json") != nullptr) {
    return unsupported(zip,
                       "a TorchScript archive of torch 1.0 to 1.2 (model.json); load it with "
                       "torch.jit.load and save it again with a newer torch");
  }
  if (zip.find(".data/extern_modules") != nullptr) {
    return unsupported(zip,
                       "a torch.package archive, which contains Python code; load it and save the "
                       "model's state_dict() with torch.save");
  }
  const auto is_named = [&](std::string_view end) {
    return std::any_of(zip.entries().begin(), zip.entries().end(),
                       [&](const ZipEntry& entry) { return entry.name.ends_with(end); });
  };
  if (is_named("/data.pkl")) {
    return unsupported(zip,
                       "a torch file that was repacked with another folder around its own; unpack "
                       "it, and pack the folder that contains data.pkl: zip -0 -r m.pt FOLDER");
  }
  if (is_named(".npy")) {
    return unsupported(zip,
                       "NumPy arrays (.npz), not a PyTorch checkpoint; save them as safetensors: "
                       "safetensors.numpy.save_file(dict(numpy.load(file)), ...)");
  }
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries()) {
    names.emplace_back(entry.name);
  }
  return unsupported(zip, "this zip file is not a PyTorch checkpoint; it contains " +
                              (names.empty() ? "nothing" : quote_list(names, kShownRecords)) +
                              "; if the checkpoint is in it, unpack it first: unzip");
}

Result<FileContents> read_archive(const ZipArchive& zip, const OpenOptions& options) {
  if (is_exported_program(zip)) {
    return read_exported_program(zip, options);
  }
  if (zip.root().empty() || zip.find("data.pkl") == nullptr) {
    return fail(refusal(zip));
  }
  return zip.find("constants.pkl") == nullptr ? read_torch_zip(zip, options)
                                              : read_torch_script(zip, options);
}

}  // namespace

Result<FileContents> read_zip_checkpoint(std::shared_ptr<const SourceFile> file,
                                         const OpenOptions& options) {
  TRY_ASSIGN(const auto zip, ZipArchive::open(std::move(file)));
  TRY_ASSIGN(auto contents, read_archive(zip, options));
  if (zip.bytes_behind() > 0) {
    contents.notes.push_back(zip.name() + ": " + std::to_string(zip.bytes_behind()) +
                             " bytes after the zip archive are not read, as in torch");
  }
  return contents;
}

}  // namespace onnx_external
