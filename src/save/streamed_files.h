// The data files of ExternalDataWriter, whose tensors come one by one. Each tensor gets its place
// when it comes, because the number of tensors is not known beforehand.
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
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/file_names.h"
#include "save/file_syncer.h"
#include "save/publish.h"

namespace onnx_external {

// The destination of the bytes of a tensor.
struct StreamedRange {
  std::size_t file = 0;
  std::uint64_t offset = 0;
};

// Thread-safe, but for finish() and name_shards(). Files are written in `transaction`, which must
// outlive this object.
class StreamedFiles {
 public:
  // `layout`: its layout, data_name, max_shard_bytes and alignment. Requires:
  // check_layout_options(layout).
  StreamedFiles(const Transaction& transaction, PlanOptions layout);

  // Returns the next place, by the rules of lay_out(), in the order of the calls. Call release()
  // when the tensor is written. kInvalidArgument for more than kMaxShards shards; errors of closing
  // the file before.
  [[nodiscard]] Result<StreamedRange> take(std::string_view tensor, std::uint64_t bytes);

  // Returns the file, with room for `bytes` bytes from the place on. The first tensor of a file
  // creates it.
  [[nodiscard]] Result<const OutputFile*> open(const StreamedRange& place, std::uint64_t bytes);

  // Releases a place: no thread writes there any more. A file is closed when all its places are
  // released and no tensor will be added to it.
  [[nodiscard]] Status release(const StreamedRange& place);

  // Removes the file of a tensor that could not be written, where it has one of its own; in other
  // layouts its place stays a hole. After release().
  void drop(const StreamedRange& place);

  // The file as the model spells it, relative to its folder. Shards have names of their own until
  // name_shards(), since their number is part of the final ones.
  [[nodiscard]] std::string location(std::size_t file) const;
  [[nodiscard]] std::string name(std::size_t file) const;
  [[nodiscard]] std::uint64_t bytes(std::size_t file) const;

  // Closes all files and waits until they are on the disk, if they must be synced. No thread may
  // still write.
  [[nodiscard]] Status finish(int threads, ProgressMeter& meter);

  // Gives the shards their final names, on the disk and in `files`, which lists them in order.
  [[nodiscard]] Status name_shards(std::vector<PlannedFile>& files) const;

 private:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::size_t writers = 0;
    bool is_full = false;  // no tensor will follow
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
  mutable std::mutex mutex_;  // guards all files but their data
  std::deque<File> files_;    // they do not move
};

}  // namespace onnx_external
