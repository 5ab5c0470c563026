#include "checkpoint/formats/pickle_file.h"

#include <utility>

#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/pickle/pickle_stream.h"

namespace onnx_external {

Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  auto pickle = PickleStream(*file).next();
  if (!pickle) {
    return fail_in(where, std::move(pickle).error());
  }
  FileContents part;
  part.format = "pickle";
  part.facts.pickle_protocol = pickle->protocol();
  part.files.push_back(std::move(file));
  const FindStorage none = [](const TensorDeclaration&) -> Result<std::uint32_t> {
    return fail(ErrorCode::kUnsupported,
                "its storage is a persistent id, which only the program that wrote the file can "
                "read; save with torch.save");
  };
  if (auto status = add_all_tensors(*pickle, 0, options, none, part); !status) {
    return fail_in(where, std::move(status).error());
  }
  return part;
}

}  // namespace onnx_external
