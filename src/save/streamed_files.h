// Writes the data files of a Writer, to which tensors are passed one by one. Each tensor
// gets its file and offset when it is passed, because the number of tensors is not known in
// advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/file_names.h"
#include "save/file_syncer.h"
#include "save/transaction.h"

namespace onnx_external {

// A tensor that is being added: a checkpoint and a plan of one.
struct AddedTensor {
  Checkpoint checkpoint;
  SavePlan plan;

  // Fails like checkpoint_of(), and with kUnsupported if ONNX has no type for the tensor.
  [[nodiscard]] static Result<AddedTensor> of(ProvidedTensor given);

  [[nodiscard]] const PlannedTensor& tensor() const { return plan.tensors.front(); }
  [[nodiscard]] const std::string& name() const { return tensor().name; }
  [[nodiscard]] std::uint64_t bytes() const { return tensor().nbytes; }
  [[nodiscard]] std::string where() const { return "tensor " + quote(name()); }

  // Returns whether its data stays in the initializer.
  [[nodiscard]] bool is_inline() const;
  // Returns the initializer without its data.
  [[nodiscard]] onnx::TensorProto initializer() const;
  // Returns all its bytes.
  [[nodiscard]] Result<std::string> read() const;
};

// The file and offset at which a tensor is written.
struct StreamedRange {
  std::size_t file = 0;
  std::uint64_t offset = 0;
};

// The data files of one writer. Thread-safe, except for finish() and name_shards().
class StreamedFiles {
 public:
  // Files are written in the staging folder of `transaction`, which must outlive this object. Only
  // the members layout, data_name, max_shard_bytes and alignment of `layout` are used. Requires:
  // check_layout_options(layout) succeeds.
  StreamedFiles(const Transaction& transaction, PlanOptions layout);

  // Returns the position for the next tensor. Tensors are laid out in the order of the calls, by
  // the rules of lay_out(). Call release() after the tensor is written. Errors: kInvalidArgument
  // for more than kMaxShards shards; errors of closing the previous file.
  [[nodiscard]] Result<StreamedRange> take(std::string_view tensor, std::uint64_t bytes);

  // Returns the file for a position, with space reserved for `bytes` bytes. The call for the first
  // tensor in a file creates the file.
  [[nodiscard]] Result<const OutputFile*> open(const StreamedRange& place, std::uint64_t bytes);

  // Releases a position after its tensor is written. A file is closed when all its positions are
  // released and no tensor will be added to it.
  [[nodiscard]] Status release(const StreamedRange& place);

  // Removes the file of a tensor that could not be written, if each tensor has its own file. In
  // other layouts, the position remains a hole. Must be called after release().
  void drop(const StreamedRange& place);

  // Returns the location of the file in the model, relative to the model's folder. Shards have
  // temporary names until name_shards(), because their final names include the number of shards.
  [[nodiscard]] std::string location(std::size_t file) const;
  [[nodiscard]] std::string name(std::size_t file) const;
  [[nodiscard]] std::uint64_t bytes(std::size_t file) const;

  // Closes all files and, if they must be synced, waits until they are on the disk. Requires: no
  // thread is writing.
  [[nodiscard]] Status finish(int threads, ProgressMeter& meter);

  // Gives the shards their final names, on the disk and in `files`, which lists them in order.
  [[nodiscard]] Status name_shards(std::vector<PlannedFile>& files) const;

 private:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::size_t writers = 0;
    bool is_full = false;  // no more tensors will be added
    DataFile data;
  };

  [[nodiscard]] bool has_own_files() const { return layout_.layout == Layout::kPerTensor; }
  [[nodiscard]] const std::string& data_dir() const { return transaction_.options().data_dir; }
  [[nodiscard]] DataName data_name() const;
  [[nodiscard]] Status add_file(std::string_view tensor);
  [[nodiscard]] Status close(File& file);

  const Transaction& transaction_;
  PlanOptions layout_;
  FileSyncer syncer_;
  mutable std::mutex mutex_;  // guards all members of the files except `data`
  std::deque<File> files_;    // elements do not move
};

}  // namespace onnx_external
