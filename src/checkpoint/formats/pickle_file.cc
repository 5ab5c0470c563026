#include "checkpoint/formats/pickle_file.h"

#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/pickle/pickle_stream.h"

namespace onnx_external {

Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  TRY_ASSIGN_IN(where, auto pickle, PickleStream(*file).next());
  FileContents part;
  part.format = "pickle";
  part.facts.pickle_protocol = pickle.protocol();
  part.files.push_back(std::move(file));
  const FindStorage none = [](const TensorDeclaration&) -> Result<std::uint32_t> {
    return fail(ErrorCode::kUnsupported,
                "its storage is a persistent id, which only the program that wrote the file can "
                "read; save with torch.save");
  };
  TRY_IN(where, add_all_tensors(pickle, 0, options, none, part));
  return part;
}

}  // namespace onnx_external
