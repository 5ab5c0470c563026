#include "onnx/load.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxModelBytes = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kSniffBytes = 512;

// SourceFile promises reads at explicit offsets only, so its descriptor's position is not used.
class SourceStream final : public google::protobuf::io::CopyingInputStream {
 public:
  explicit SourceStream(const SourceFile& file) : file_(file) {}

  int Read(void* buffer, int size) override {
    const std::uint64_t left = file_.size() - position_;
    const auto count = std::min(left, static_cast<std::uint64_t>(size));
    status_ =
        file_.read(position_, {static_cast<std::byte*>(buffer), static_cast<std::size_t>(count)});
    if (!status_) {
      return -1;
    }
    position_ += count;
    return static_cast<int>(count);
  }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const SourceFile& file_;
  std::uint64_t position_ = 0;
  Status status_;
};

Result<std::string> first_bytes(const SourceFile& file) {
  std::string head(static_cast<std::size_t>(std::min(file.size(), kSniffBytes)), '\0');
  if (Status status = file.read(0, std::as_writable_bytes(std::span(head))); !status) {
    return fail(std::move(status).error());
  }
  return head;
}

// What the file seems to be, when it is no ONNX model.
std::string_view seems_to_be(std::string_view head) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string_view text = head.substr(std::min(head.find_first_not_of(kSpace), head.size()));
  const std::string start = ascii_lower(text.substr(0, 16));
  if (head.starts_with("PK\x03\x04")) {
    return "it is a zip file, perhaps a PyTorch checkpoint; the graph comes first, then the "
           "checkpoint";
  }
  if (head.size() > 8 && head[8] == '{' && head.substr(5, 3) == std::string_view("\0\0\0", 3)) {
    return "it is a safetensors checkpoint; the graph comes first, then the checkpoint";
  }
  if (head.starts_with("\x80\x02") || head.starts_with("\x80\x03") ||
      head.starts_with("\x80\x04")) {
    return "it is a Python pickle, perhaps a PyTorch checkpoint; the graph comes first, then the "
           "checkpoint";
  }
  if (start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml")) {
    return "it is a web page; download the file itself";
  }
  if (text.starts_with("version https://git-lfs")) {
    return "it is a Git LFS pointer; fetch the file itself with git lfs pull";
  }
  if (text.find("ir_version") != std::string_view::npos) {
    return "it is ONNX in text form; convert it to the binary form first";
  }
  if (text.starts_with('{') || text.starts_with('[')) {
    return "it is JSON";
  }
  return "protobuf cannot parse it, or its subgraphs are nested too deeply";
}

Result<onnx::ModelProto> parse(const SourceFile& file, std::string_view head) {
  // Protobuf would report on standard error what is reported here as a value.
  const google::protobuf::LogSilencer quiet;
  onnx::ModelProto proto;
  SourceStream source(file);
  google::protobuf::io::CopyingInputStreamAdaptor adaptor(&source);
  google::protobuf::io::CodedInputStream coded(&adaptor);
  coded.SetTotalBytesLimit(static_cast<int>(kMaxModelBytes));
  const bool parsed = proto.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
  if (!source.status()) {
    return fail(Error(source.status().error()));
  }
  if (!parsed) {
    return fail(ErrorCode::kCorrupt, "not an ONNX model: " + std::string(seems_to_be(head)));
  }
  return proto;
}

}  // namespace

Result<onnx::ModelProto> load_model_proto(const std::filesystem::path& path) {
  Result<std::shared_ptr<const SourceFile>> file = SourceFile::open(path);
  if (!file) {
    return fail(std::move(file).error());
  }
  const std::string where = path.string();
  if ((*file)->size() == 0) {
    return fail(ErrorCode::kCorrupt, where + ": not an ONNX model: the file is empty");
  }
  if ((*file)->size() > kMaxModelBytes) {
    return fail(ErrorCode::kUnsupported,
                where + ": " + std::to_string((*file)->size()) +
                    " bytes, but protobuf cannot read a model of more than 2147483647; save the "
                    "graph without its weights");
  }
  Result<std::string> head = first_bytes(**file);
  if (!head) {
    return fail(std::move(head).error());
  }
  Result<onnx::ModelProto> proto = parse(**file, *head);
  if (!proto) {
    return fail_in(where, std::move(proto).error());
  }
  if (!proto->has_graph()) {
    return fail(ErrorCode::kCorrupt, where + ": not an ONNX model: it has no graph");
  }
  return proto;
}

}  // namespace onnx_external
