#include "checkpoint/formats/torch_files.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/pickle/pickle_stream.h"
#include "checkpoint/torch/legacy_file.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {
namespace {

// joblib stores the bytes of an array after an object of this class.
bool is_of_joblib(const SourceFile& file) {
  constexpr std::uint64_t kSearched = std::uint64_t{1} << 16;
  std::string head(static_cast<std::size_t>(std::min(file.size(), kSearched)), '\0');
  return file.read(0, std::as_writable_bytes(std::span(head))).has_value() &&
         head.find("NumpyArrayWrapper") != std::string::npos;
}

}  // namespace

Result<FileContents> read_torch_zip(const ZipArchive& zip, const OpenOptions& options) {
  FileContents part;
  TRY(check_version(zip, part.facts));
  TRY_ASSIGN(const auto order, read_byte_order(zip));
  TRY_ASSIGN(auto pickle, read_pickle_record(zip, "data.pkl"));
  const ZipEntry& text = *zip.find("data.pkl");
  const auto text_offset =
      text.compression == Compression::kNone ? std::optional(text.data_offset) : std::nullopt;
  part.format = "torch-zip";
  part.facts.pickle_protocol = pickle.protocol();
  part.files.push_back(zip.file());
  RecordStorages storages(zip, order, part);
  const auto find = [&](const TensorDeclaration& declared) {
    return storages.find("data/" + declared.storage_key, declared.storage_bytes);
  };
  TRY_IN(zip.name(), add_all_tensors(pickle, text_offset, options, find, part));
  return part;
}

Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                       const OpenOptions& options) {
  const std::string where = file->name();
  PickleStream stream(*file);
  TRY_ASSIGN_IN(where, auto legacy, read_legacy_file(stream));
  FileContents part;
  part.format = "torch-legacy";
  part.facts.pickle_protocol = legacy.object.protocol();
  part.files.push_back(std::move(file));
  BlockStorages storages(legacy.blocks, part);
  const auto find = [&](const TensorDeclaration& declared) { return storages.find(declared); };
  TRY_IN(where, add_all_tensors(legacy.object, 0, options, find, part));
  return part;
}

Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  auto read = PickleStream(*file).next();
  if (!read && is_of_joblib(*file)) {
    return fail(
        ErrorCode::kUnsupported,
        where +
            ": a joblib file, whose arrays are stored between the parts of a pickle; load it "
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
