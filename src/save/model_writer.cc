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

bool is_deferred(const ModelSegment& segment) {
  return segment.from == ModelSegment::From::kDeferred;
}

class ModelFileWriter {
 public:
  ModelFileWriter(const ModelFileJob& job, OutputFile& file)
      : job_(job), file_(file), meter_(job.options.progress) {}

  Result<std::uint32_t> write() {
    meter_.begin(Phase::kCopy, bytes_from_model());
    for (const ModelSegment& segment : job_.segments.segments) {
      TRY(write_segment(segment));
    }
    if (bytes_from_model() > 0) {
      TRY(job_.cuts.file().check_unchanged());
      TRY(meter_.finish());
    }
    return crc_;
  }

 private:
  std::uint64_t bytes_from_model() const {
    std::uint64_t bytes = 0;
    for (const ModelSegment& segment : job_.segments.segments) {
      bytes += segment.from == ModelSegment::From::kModelFile ? segment.bytes : 0;
    }
    return bytes;
  }

  Status write_segment(const ModelSegment& segment) {
    Status status;
    std::uint32_t crc = 0;
    if (is_deferred(segment)) {
      crc = job_.deferred_crcs[segment.number];
    } else {
      Crc32 digest;
      status = segment.from == ModelSegment::From::kText ? write_text(segment, digest)
                                                         : copy_from_model(segment, digest);
      crc = digest.value();
    }
    crc_ = crc32_concat(crc_, crc, segment.bytes);
    position_ += segment.bytes;
    return status;
  }

  Status write_text(const ModelSegment& segment, Crc32& crc) {
    const auto text = std::string_view(job_.segments.text)
                          .substr(static_cast<std::size_t>(segment.offset),
                                  static_cast<std::size_t>(segment.bytes));
    crc.update(std::as_bytes(std::span(text)));
    return file_.write(position_, std::as_bytes(std::span(text)));
  }

  Status copy_from_model(const ModelSegment& segment, Crc32& crc) {
    const StepFn step = [this](std::uint64_t bytes) { return meter_.add(bytes); };
    return copier_.copy_with_crc(
        {job_.cuts.file(), segment.offset, segment.bytes, file_, position_, step}, crc);
  }

  const ModelFileJob& job_;
  OutputFile& file_;
  ProgressMeter meter_;
  RangeCopier copier_;
  std::uint64_t position_ = 0;
  std::uint32_t crc_ = 0;
};

Result<OutputFile> open_model_file(const ModelFileJob& job) {
  const auto& segments = job.segments.segments;
  if (std::any_of(segments.begin(), segments.end(), is_deferred)) {
    return OutputFile::reopen(job.folder, job.name);
  }
  return create_file(job.folder, job.name, job.segments.bytes);
}

}  // namespace

std::vector<std::uint64_t> deferred_offsets(const ModelSegments& segments) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t position = 0;
  for (const ModelSegment& segment : segments.segments) {
    if (is_deferred(segment)) {
      offsets.resize(std::max<std::size_t>(offsets.size(), segment.number + 1));
      offsets[segment.number] = position;
    }
    position += segment.bytes;
  }
  return offsets;
}

Result<ModelIdentity> write_model_file(const ModelFileJob& job) {
  TRY_ASSIGN(auto file, open_model_file(job));
  TRY_ASSIGN(const auto crc, ModelFileWriter(job, file).write());
  TRY(job.options.sync == Sync::kFiles ? file.sync() : Status());
  TRY(file.close());
  return ModelIdentity{job.segments.bytes, crc};
}

}  // namespace onnx_external
