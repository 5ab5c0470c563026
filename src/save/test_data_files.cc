#include "save/test_data_files.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/io_buffer.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{1} << 20;

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
  const std::uint64_t nbytes = recording.nbytes(tensor);
  Status status = recording.check_storage(recording.tensors()[tensor].storage);
  for (std::uint64_t done = 0; status && done < nbytes;) {
    const std::span<std::byte> step = buffer.first(std::min(kStep, nbytes - done));
    status = recording.read(tensor, done, step);
    if (status) {
      status = out.append(step);
    }
    done += step.size();
  }
  return status;
}

Result<ManifestFile> write_input(const TestInput& input, const Checkpoint& recording,
                                 const Directory& folder, const std::string& name, Sync sync) {
  TRY_ASSIGN(const auto header, test_input_header(input, recording.nbytes(input.tensor)));
  TRY_ASSIGN(auto file, OutputFile::create(folder, name));
  IoBuffer buffer;
  Appender out(file);
  Status status = out.append(std::as_bytes(std::span(header)));
  if (status) {
    status = append_tensor(recording, input.tensor, buffer, out);
  }
  if (status && sync == Sync::kFiles) {
    status = file.sync();
  }
  if (status) {
    status = file.close();
  }
  if (!status) {
    return fail(std::move(status).error());
  }
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
      auto file = write_input(tensors[i], inputs.recordings[tensors[i].recording], *folder,
                              test_input_name(i), transaction.options().sync);
      if (!file) {
        return fail_in("recorded input " + quote(tensors[i].recorded), std::move(file).error());
      }
      file->file = set + "/" + file->file;
      files.push_back(*std::move(file));
    }
  }
  for (const Checkpoint& recording : inputs.recordings) {
    TRY(recording.check_unchanged());
  }
  return files;
}

}  // namespace onnx_external
