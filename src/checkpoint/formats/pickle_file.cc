#include "checkpoint/formats/pickle_file.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/pickle/pickle_stream.h"

namespace onnx_external {
namespace {

// joblib puts the bytes of an array behind an object of this class.
bool is_of_joblib(const SourceFile& file) {
  constexpr std::uint64_t kSearched = std::uint64_t{1} << 16;
  std::string head(static_cast<std::size_t>(std::min(file.size(), kSearched)), '\0');
  return file.read(0, std::as_writable_bytes(std::span(head))).has_value() &&
         head.find("NumpyArrayWrapper") != std::string::npos;
}

}  // namespace

Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  auto read = PickleStream(*file).next();
  if (!read && is_of_joblib(*file)) {
    return fail(ErrorCode::kUnsupported,
                where +
                    ": a file of joblib, whose arrays stand between the parts of a pickle; load it "
                    "with joblib.load, and save its tensors as safetensors");
  }
  TRY_ASSIGN_IN(where, auto pickle, std::move(read));
  FileContents part;
  part.format = "pickle";
  part.facts.pickle_protocol = pickle.protocol();
  part.files.push_back(std::move(file));
  const FindStorage none = [](const TensorDeclaration&) -> Result<std::uint32_t> {
    return fail(ErrorCode::kUnsupported,
                "its values are not in this file, which is the pickle of an unpacked torch file "
                "(data.pkl); pack its folder again (zip -0 -r m.pt FOLDER), or save with "
                "torch.save");
  };
  TRY_IN(where, add_all_tensors(pickle, 0, options, none, part));
  return part;
}

}  // namespace onnx_external
