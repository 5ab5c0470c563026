#include "save/model_writer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/copy_range.h"
#include "base/digest.h"
#include "base/output_file.h"
#include "base/progress_meter.h"
#include "base/try.h"
#include "save/staging.h"

namespace onnx_external {
namespace {

bool is_deferred(const ModelPiece& piece) {
  return piece.from == ModelPiece::From::kDeferred;
}

class ModelFileWriter {
 public:
  ModelFileWriter(const ModelFileJob& job, OutputFile& file)
      : job_(job), file_(file), meter_(job.options.progress) {}

  Result<std::uint32_t> write() {
    meter_.begin(Phase::kCopy, given_bytes());
    for (const ModelPiece& piece : job_.pieces.pieces) {
      TRY(write_piece(piece));
    }
    if (given_bytes() > 0) {
      TRY(job_.cuts.file().check_unchanged());
      TRY(meter_.finish());
    }
    return crc_;
  }

 private:
  std::uint64_t given_bytes() const {
    std::uint64_t bytes = 0;
    for (const ModelPiece& piece : job_.pieces.pieces) {
      bytes += piece.from == ModelPiece::From::kGiven ? piece.bytes : 0;
    }
    return bytes;
  }

  Status write_piece(const ModelPiece& piece) {
    Status status;
    std::uint32_t crc = 0;
    if (is_deferred(piece)) {
      crc = job_.deferred_crcs[piece.number];
    } else {
      Crc32 digest;
      status = piece.from == ModelPiece::From::kText ? write_text(piece, digest)
                                                     : copy_given(piece, digest);
      crc = digest.value();
    }
    crc_ = crc32_concat(crc_, crc, piece.bytes);
    position_ += piece.bytes;
    return status;
  }

  Status write_text(const ModelPiece& piece, Crc32& crc) {
    const auto text =
        std::string_view(job_.pieces.text)
            .substr(static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.bytes));
    crc.update(std::as_bytes(std::span(text)));
    return file_.write(position_, std::as_bytes(std::span(text)));
  }

  Status copy_given(const ModelPiece& piece, Crc32& crc) {
    const StepFn step = [this](std::uint64_t bytes) { return meter_.add(bytes); };
    return copier_.copy_with_digests(
        {job_.cuts.file(), piece.offset, piece.bytes, file_, position_, step}, crc, nullptr);
  }

  const ModelFileJob& job_;
  OutputFile& file_;
  ProgressMeter meter_;
  RangeCopier copier_;
  std::uint64_t position_ = 0;
  std::uint32_t crc_ = 0;
};

Result<OutputFile> open_model_file(const ModelFileJob& job) {
  const auto& pieces = job.pieces.pieces;
  if (std::any_of(pieces.begin(), pieces.end(), is_deferred)) {
    return OutputFile::reopen(job.folder, job.name);
  }
  return create_file(job.folder, job.name, job.pieces.bytes);
}

}  // namespace

std::vector<std::uint64_t> deferred_offsets(const ModelPieces& pieces) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t position = 0;
  for (const ModelPiece& piece : pieces.pieces) {
    if (is_deferred(piece)) {
      offsets.resize(std::max<std::size_t>(offsets.size(), piece.number + 1));
      offsets[piece.number] = position;
    }
    position += piece.bytes;
  }
  return offsets;
}

Result<ModelIdentity> write_model_file(const ModelFileJob& job) {
  TRY_ASSIGN(auto file, open_model_file(job));
  TRY_ASSIGN(const auto crc, ModelFileWriter(job, file).write());
  TRY(job.options.sync == Sync::kFiles ? file.sync() : Status());
  TRY(file.close());
  return ModelIdentity{job.pieces.bytes, crc};
}

}  // namespace onnx_external
