#include "checkpoint/formats/torch_zip.h"

#include <optional>
#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {

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

}  // namespace onnx_external
