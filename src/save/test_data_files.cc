#include "save/test_data_files.h"

#include <span>
#include <utility>

#include "base/digest.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/read_step.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// One file being written, from its start to its end.
class Appender {
 public:
  explicit Appender(OutputFile& file) : file_(file) {}

  [[nodiscard]] Status append(std::span<const std::byte> bytes) {
    crc_.update(bytes);
    auto status = file_.write(written_, bytes);
    written_ += bytes.size();
    return status;
  }
  [[nodiscard]] std::uint64_t written() const { return written_; }
  [[nodiscard]] std::uint32_t crc32() const { return crc_.value(); }

 private:
  OutputFile& file_;
  Crc32 crc_;
  std::uint64_t written_ = 0;
};

Status append_tensor(const Checkpoint& recording, std::size_t tensor, IoBuffer& buffer,
                     Appender& out) {
  TRY(recording.check_storage(recording.tensors()[tensor].storage));
  return for_each_step(recording.nbytes(tensor), buffer,
                       [&](std::uint64_t first, std::span<std::byte> bytes) -> Status {
                         TRY(recording.read(tensor, first, bytes));
                         return out.append(bytes);
                       });
}

Result<ManifestFile> write_input(const TestInput& input, const Checkpoint& recording,
                                 const Directory& folder, const std::string& name, Sync sync) {
  TRY_ASSIGN(const auto header, test_input_header(input, recording.nbytes(input.tensor)));
  TRY_ASSIGN(auto file, OutputFile::create(folder, name));
  IoBuffer buffer;
  Appender out(file);
  TRY(out.append(std::as_bytes(std::span(header))));
  TRY(append_tensor(recording, input.tensor, buffer, out));
  if (sync == Sync::kFiles) {
    TRY(file.sync());
  }
  TRY(file.close());
  return ManifestFile{name, out.written(), out.crc32()};
}

}  // namespace

Result<std::vector<ManifestFile>> write_test_data(const RecordedInputs& inputs,
                                                  Transaction& transaction) {
  std::vector<ManifestFile> files;
  for (std::size_t s = 0; s < inputs.data.sets.size(); ++s) {
    const std::string set = test_set_name(s);
    TRY_ASSIGN(const auto folder, transaction.add_test_data_folder(set));
    const std::vector<TestInput>& tensors = inputs.data.sets[s].inputs;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TRY_ASSIGN_IN("recorded input " + quote(tensors[i].recorded), auto file,
                    write_input(tensors[i], inputs.recordings[tensors[i].recording], *folder,
                                test_input_name(i), transaction.options().sync));
      file.file = set + "/" + file.file;
      files.push_back(std::move(file));
    }
  }
  for (const Checkpoint& recording : inputs.recordings) {
    TRY(recording.check_unchanged());
  }
  return files;
}

}  // namespace onnx_external
