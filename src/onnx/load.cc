#include "onnx/load.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/foreign_format.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/wire_scan.h"

namespace onnx_external {
namespace {

// Reads a SourceFile from the start. It keeps its own position, because SourceFile only reads at
// explicit offsets.
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

// Guesses the format of a file that is not an ONNX model.
std::string seems_to_be(std::string_view head) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string_view text = head.substr(std::min(head.find_first_not_of(kSpace), head.size()));
  if (head.starts_with("PK\x03\x04")) {
    return "it is a zip file, perhaps a PyTorch checkpoint; pass the graph first, then the "
           "checkpoint";
  }
  if (head.size() > 8 && head[8] == '{' && head.substr(5, 3) == std::string_view("\0\0\0", 3)) {
    return "it is a safetensors checkpoint; pass the graph first, then the checkpoint";
  }
  if (head.starts_with("\x80\x02") || head.starts_with("\x80\x03") ||
      head.starts_with("\x80\x04")) {
    return "it is a Python pickle, perhaps a PyTorch checkpoint; pass the graph first, then the "
           "checkpoint";
  }
  if (text.find("ir_version") != std::string_view::npos) {
    return "it is ONNX in text form; convert it to the binary form first";
  }
  constexpr std::size_t kTarMagic = 257;
  if (head.size() > kTarMagic && head.substr(kTarMagic).starts_with("ustar")) {
    return "it is a tar archive; unpack it first: tar -xf";
  }
  if (is_error_document(head)) {
    return "it is a server's error message; download the file again";
  }
  if (text.starts_with('{') || text.starts_with('[')) {
    return "it is JSON";
  }
  if (const auto found = foreign_format(head)) {
    return "it is " + found->what + "; " +
           (found->kind == ForeignKind::kWeights
                ? "it contains weights, but no graph; export the model to ONNX"
                : found->advice);
  }
  if (is_all_zeros(head)) {
    return "it " + std::string(kBeginsWithZeros);
  }
  return "protobuf cannot parse it, or its subgraphs are nested too deeply";
}

using SharedModel = std::shared_ptr<onnx::ModelProto>;

SharedModel model_on_arena() {
  constexpr std::size_t kMostBlockBytes = std::size_t{64} << 10;
  google::protobuf::ArenaOptions options;
  options.max_block_size = kMostBlockBytes;
  const auto arena = std::make_shared<google::protobuf::Arena>(options);
  return {arena, google::protobuf::Arena::CreateMessage<onnx::ModelProto>(arena.get())};
}

Result<SharedModel> parse(google::protobuf::io::ZeroCopyInputStream& stream) {
  // Protobuf would print the error that is returned here.
  const google::protobuf::LogSilencer quiet;
  SharedModel proto = model_on_arena();
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(static_cast<int>(kMaxMessageBytes));
  if (!proto->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return fail(ErrorCode::kCorrupt, "protobuf cannot parse it");
  }
  return proto;
}

Result<SharedModel> parse_file(const SourceFile& file) {
  SourceStream source(file);
  google::protobuf::io::CopyingInputStreamAdaptor stream(&source);
  Result<SharedModel> proto = parse(stream);
  return source.status() ? std::move(proto) : fail(Error(source.status().error()));
}

Result<SharedModel> parse_text(std::string_view text) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  return parse(stream);
}

// Replaces the first data field of each tensor by its placeholder, and removes the others.
std::vector<WireEdit> cuts_of(const WireScan& scan) {
  constexpr std::uint64_t kFieldBytes = Placeholders::kBytes + 2;
  static_assert(Placeholders::kBytes < 0x80, "its length takes one byte");
  std::vector<WireEdit> edits;
  edits.reserve(scan.segments.size());
  for (const WireTensor& tensor : scan.tensors) {
    std::uint64_t bytes = kFieldBytes;
    for (const WireSegment& segment : scan.segments_of(tensor)) {
      edits.push_back({tensor.message, segment.begin, segment.end, bytes});
      bytes = 0;
    }
  }
  return edits;
}

// The text of the file with placeholders in the place of the data that is cut.
Result<std::string> skeleton_of(const SourceFile& file, const WireScan& scan,
                                const Placeholders& placeholders) {
  TRY_ASSIGN(const auto steps, rewrite(scan, cuts_of(scan), file.size()));
  std::string out;
  std::uint32_t tensors = 0;
  for (const WireStep& step : steps) {
    if (step.kind == WireStep::Kind::kLength) {
      append_varint(out, step.from);
    } else if (step.kind == WireStep::Kind::kEdit) {
      append_raw_data_header(out, Placeholders::kBytes);
      out += placeholders.text(tensors++);
    } else {
      const std::size_t before = out.size();
      out.resize(before + static_cast<std::size_t>(step.bytes));
      const auto room = std::as_writable_bytes(std::span(out)).subspan(before);
      TRY(file.read(step.from, room));
    }
  }
  return out;
}

Result<LoadedModel> load(const std::shared_ptr<const SourceFile>& file) {
  TRY_ASSIGN(auto scan, scan_model(WireInput(*file), {kMinCutBytes}));
  LoadedModel loaded;
  loaded.file = file;
  if (scan.tensors.empty()) {
    loaded.cuts = std::make_shared<const CutTensors>();
    TRY_ASSIGN(loaded.proto, parse_file(*file));
    return loaded;
  }
  const Placeholders placeholders;
  TRY_ASSIGN(const auto skeleton, skeleton_of(*file, scan, placeholders));
  TRY_ASSIGN(loaded.proto, parse_text(skeleton));
  loaded.cuts = std::make_shared<const CutTensors>(file, std::move(scan), placeholders);
  return loaded;
}

// Guesses the type of another protobuf message that parses as a model because its fields fit.
std::string other_protobuf(const std::filesystem::path& path) {
  const std::string end = path.extension().string();
  if (path.filename() == "saved_model.pb") {
    return "; it is a TensorFlow SavedModel; convert it to ONNX first";
  }
  if (end == ".mlmodel") {
    return "; it is a Core ML model; export the model that it was made from to ONNX";
  }
  return end == ".pb" ? "; perhaps it is a TensorFlow graph, or one tensor of test data" : "";
}

// Says what the file seems to be if it is not a model.
Error explain(const SourceFile& file, Error error) {
  if (error.code != ErrorCode::kCorrupt) {
    return error;
  }
  const auto head = head_of(file);
  return head ? Error{ErrorCode::kCorrupt, "not an ONNX model: " + seems_to_be(*head)}
              : head.error();
}

}  // namespace

Result<LoadedModel> load_model_file(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  const std::string where = path.string();
  if (file->size() == 0) {
    return fail(ErrorCode::kCorrupt, where + ": not an ONNX model: the file is empty");
  }
  if (file->size() > kMaxMessageBytes) {
    return fail(ErrorCode::kUnsupported,
                where + ": " + size_text(file->size()) +
                    ", but protobuf cannot read a model of more than 2.15 GB; save the "
                    "graph without its weights");
  }
  Result<LoadedModel> loaded = load(file);
  if (!loaded) {
    return fail_in(where, explain(*file, std::move(loaded).error()));
  }
  if (!loaded->proto->has_graph()) {
    return fail(ErrorCode::kCorrupt,
                where + ": not an ONNX model: it has no graph" + other_protobuf(path));
  }
  return loaded;
}

}  // namespace onnx_external
