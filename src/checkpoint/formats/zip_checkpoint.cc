#include "checkpoint/formats/zip_checkpoint.h"

#include <utility>

#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container/zip_archive.h"
#include "checkpoint/formats/exported_program.h"
#include "checkpoint/formats/torch_script.h"
#include "checkpoint/formats/torch_zip.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {
namespace {

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

// A checkpoint of many tensors has as many headers. They are read while another thread parses the
// pickle and lists its tensors, which wait for the headers that they need.
// `entry`: data.pkl.
Result<FileContents> locate_and_read(ZipArchive& zip, const ZipEntry& entry,
                                     const OpenOptions& options) {
  auto bytes = zip.read_record(entry, kMaxPickleBytes);
  Result<FileContents> part = fail(ErrorCode::kIo, "not read");
  Status located;
  Status done = parallel_both(
      thread_count(options.threads),
      [&]() -> Status {
        part = read_torch_zip(zip, parse_pickle_record(zip, entry, std::move(bytes)), options);
        return {};
      },
      [&]() -> Status {
        located = zip.locate();
        return located;
      });
  // A damaged header is reported first, because it may be why the tensors could not be read.
  if (!located) {
    return fail(std::move(located).error());
  }
  return done ? std::move(part) : fail(std::move(done).error());
}

}  // namespace

Result<FileContents> read_zip_checkpoint(std::shared_ptr<const SourceFile> file,
                                         const OpenOptions& options) {
  TRY_ASSIGN(auto zip, ZipArchive::open_names(std::move(file)));
  const bool is_program = is_exported_program(zip);
  const ZipEntry* pickle = zip.root().empty() ? nullptr : zip.find("data.pkl");
  const bool is_script = pickle != nullptr && zip.find("constants.pkl") != nullptr;
  if (pickle != nullptr && !is_program && !is_script) {
    return locate_and_read(zip, *pickle, options);
  }
  TRY(zip.locate());
  if (is_program) {
    return read_exported_program(zip, options);
  }
  return is_script ? read_torch_script(zip, options) : Result<FileContents>(fail(refusal(zip)));
}

}  // namespace onnx_external
