#include "base/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10;

// No larger than needed, because most compressed records are small.
std::vector<std::byte> chunk_for(std::uint64_t bytes) {
  return std::vector<std::byte>(static_cast<std::size_t>(std::min(bytes, kChunkBytes)));
}

struct StreamCloser {
  void operator()(z_stream* stream) const {
    ::inflateEnd(stream);
    delete stream;
  }
};
using Stream = std::unique_ptr<z_stream, StreamCloser>;

// Returns zlib's status, but throws bad_alloc if memory ran out.
int zlib_answer(int state) {
  if (state == Z_MEM_ERROR) {
    throw std::bad_alloc();
  }
  return state;
}

Stream open_stream() {
  auto stream = std::make_unique<z_stream>();
  if (zlib_answer(::inflateInit2(stream.get(), -MAX_WBITS)) != Z_OK) {
    return nullptr;
  }
  return Stream(stream.release());
}

// The compressed input: refills the stream's input buffer from the file.
class Input {
 public:
  Input(const SourceFile& file, const DeflatedRange& range)
      : file_(file), offset_(range.offset), left_(range.stored), buffer_(chunk_for(range.stored)) {}

  [[nodiscard]] Status refill(z_stream& stream) {
    if (stream.avail_in != 0 || left_ == 0) {
      return {};
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, buffer_.size()));
    const auto chunk = std::span(buffer_).first(count);
    TRY(file_.read(offset_, chunk));
    offset_ += count;
    left_ -= count;
    stream.next_in = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_in = static_cast<uInt>(count);
    return {};
  }

  [[nodiscard]] bool used_up(const z_stream& stream) const {
    return left_ == 0 && stream.avail_in == 0;
  }

 private:
  const SourceFile& file_;
  std::uint64_t offset_;
  std::uint64_t left_;
  std::vector<std::byte> buffer_;
};

}  // namespace

bool inflate_ratio_possible(std::uint64_t stored, std::uint64_t size) {
  return size <= kInflateSlack || (size - kInflateSlack) / kMaxInflateRatio <= stored;
}

Status inflate_range(const SourceFile& file, const DeflatedRange& range,
                     const std::function<Status(std::span<const std::byte>)>& sink) {
  const std::string where = file.name() + ": byte " + std::to_string(range.offset);
  Stream stream = open_stream();
  if (!stream) {
    return fail(ErrorCode::kIo, where + ": zlib cannot start");
  }
  Input input(file, range);
  std::vector<std::byte> out =
      chunk_for(std::min(range.size, kChunkBytes) + 1);  // one more, to notice surplus bytes
  std::uint64_t total = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    TRY(input.refill(*stream));
    stream->next_out = reinterpret_cast<Bytef*>(out.data());
    stream->avail_out = static_cast<uInt>(out.size());
    state = zlib_answer(::inflate(stream.get(), Z_NO_FLUSH));
    const std::size_t produced = out.size() - stream->avail_out;
    if ((state != Z_OK && state != Z_STREAM_END) ||
        (state == Z_OK && produced == 0 && input.used_up(*stream))) {
      return fail(ErrorCode::kCorrupt, where + ": damaged deflate stream");
    }
    if (produced > range.size - total) {
      return fail(ErrorCode::kCorrupt, where + ": the deflate stream is longer than the declared " +
                                           std::to_string(range.size) + " bytes");
    }
    total += produced;
    TRY(sink(std::span(out).first(produced)));
  }
  if (total != range.size || !input.used_up(*stream)) {
    return fail(ErrorCode::kCorrupt, where + ": the deflate stream contains " +
                                         std::to_string(total) + " bytes, " +
                                         std::to_string(range.size) + " are declared");
  }
  return {};
}

Result<std::string> inflate_to_string(const SourceFile& file, const DeflatedRange& range) {
  std::string text;
  TRY(inflate_range(file, range, [&](std::span<const std::byte> chunk) -> Status {
    text.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    return {};
  }));
  return text;
}

}  // namespace onnx_external
