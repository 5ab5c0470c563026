#include "onnx/inline_data.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/try.h"
#include "onnx/model_access.h"
#include "onnx/wire_reader.h"
#include "onnx_external/dtype.h"
#include "onnx_external/tensor.h"

namespace onnx_external {
namespace {

// The conversion of the numbers in a typed field to bytes.
struct Encoding {
  std::uint8_t field = kRawData;
  std::size_t width = 1;  // bytes of a number in raw data
};

Encoding typed_encoding(std::int32_t data_type) {
  switch (data_type) {
    case onnx::TensorProto::FLOAT:
    case onnx::TensorProto::COMPLEX64:
      return {kFloatData, sizeof(float)};
    case onnx::TensorProto::DOUBLE:
    case onnx::TensorProto::COMPLEX128:
      return {kDoubleData, sizeof(double)};
    case onnx::TensorProto::INT64:
      return {kInt64Data, sizeof(std::int64_t)};
    case onnx::TensorProto::UINT64:
      return {kUint64Data, sizeof(std::uint64_t)};
    case onnx::TensorProto::UINT32:
      return {kUint64Data, sizeof(std::uint32_t)};
    default:
      break;
  }
  const std::uint32_t bits = onnx_bits(data_type);
  return {kInt32Data, bits == 32 ? sizeof(std::int32_t) : bits == 16 ? sizeof(std::uint16_t) : 1};
}

bool is_fixed(std::uint8_t field) {
  return field == kFloatData || field == kDoubleData;
}

template <typename Stored, typename Values>
std::string packed(const Values& values) {
  std::string bytes(static_cast<std::size_t>(values.size()) * sizeof(Stored), '\0');
  std::size_t at = 0;
  for (const auto value : values) {
    const auto stored = static_cast<Stored>(value);
    std::memcpy(bytes.data() + at, &stored, sizeof(Stored));
    at += sizeof(Stored);
  }
  return bytes;
}

// The data of a tensor that has its numbers in a typed field of the message.
std::string typed_bytes(const onnx::TensorProto& tensor) {
  const Encoding encoding = typed_encoding(tensor.data_type());
  switch (encoding.field) {
    case kFloatData:
      return packed<float>(tensor.float_data());
    case kDoubleData:
      return packed<double>(tensor.double_data());
    case kInt64Data:
      return packed<std::int64_t>(tensor.int64_data());
    case kUint64Data:
      return encoding.width == sizeof(std::uint64_t) ? packed<std::uint64_t>(tensor.uint64_data())
                                                     : packed<std::uint32_t>(tensor.uint64_data());
    default:
      break;
  }
  switch (encoding.width) {
    case sizeof(std::int32_t):
      return packed<std::int32_t>(tensor.int32_data());
    case sizeof(std::uint16_t):
      return packed<std::uint16_t>(tensor.int32_data());
    default:
      return packed<std::uint8_t>(tensor.int32_data());
  }
}

tl::unexpected<Error> wrong_size(std::uint64_t found, std::uint64_t wanted) {
  return fail(ErrorCode::kCorrupt, "it contains " + std::to_string(found) +
                                       " bytes, but its type and dims need " +
                                       std::to_string(wanted));
}

// The segments with the value of a cut tensor: the last raw_data, which protobuf would use, or else
// all segments of the typed field for its element type.
struct CutValue {
  Encoding encoding;
  std::vector<WireSegment> segments;
};

CutValue value_of(std::int32_t data_type, std::span<const WireSegment> segments) {
  CutValue value;
  for (const WireSegment& segment : segments) {
    if (segment.field == kRawData) {
      value.segments = {segment};
    }
  }
  if (value.segments.empty()) {
    value.encoding = typed_encoding(data_type);
    std::copy_if(segments.begin(), segments.end(), std::back_inserter(value.segments),
                 [&](const WireSegment& segment) { return segment.field == value.encoding.field; });
  }
  return value;
}

// True if its bytes are in the file as raw_data would hold them.
bool is_plain(const CutValue& value) {
  return value.segments.size() == 1 && value.segments.front().packed &&
         (value.encoding.field == kRawData || is_fixed(value.encoding.field));
}

std::uint64_t payload_bytes(const WireSegment& segment) {
  return segment.end - segment.payload;
}

}  // namespace

// Turns the numbers of a cut tensor into raw data.
class InlineReader::Decoder {
 public:
  Decoder(const SourceFile& file, CutValue value)
      : input_(file), reader_(input_), value_(std::move(value)) {
    reader_.enter(0, 0);
  }

  [[nodiscard]] Status read(std::span<std::byte> out) {
    if (value_.encoding.field == kRawData) {
      return read_plain(out);
    }
    const std::size_t width = value_.encoding.width;
    for (; !out.empty(); out = out.subspan(width)) {
      if (!next_number(out.first(width))) {
        return reader_.status()
                   ? Status(fail(ErrorCode::kCorrupt, "it has fewer values than its dims require"))
                   : reader_.status();
      }
    }
    return {};
  }

  // True when all segments are used up.
  [[nodiscard]] bool at_end() const { return reader_.at_end() && next_ == value_.segments.size(); }

 private:
  Status read_plain(std::span<std::byte> out) {
    if (next_ == 0) {
      enter_next();
    }
    return reader_.bytes(out) ? Status() : reader_.status();
  }

  void enter_next() {
    const WireSegment& segment = value_.segments[next_++];
    reader_.enter(segment.packed ? segment.payload : segment.begin, segment.end);
  }

  bool next_number(std::span<std::byte> out) {
    while (reader_.at_end()) {
      if (next_ == value_.segments.size()) {
        return false;
      }
      enter_next();
    }
    WireTag tag;
    if (!value_.segments[next_ - 1].packed && !reader_.tag(tag)) {
      return false;
    }
    if (is_fixed(value_.encoding.field)) {
      return reader_.bytes(out);
    }
    std::uint64_t number = 0;
    if (!reader_.varint(number)) {
      return false;
    }
    std::memcpy(out.data(), &number, out.size());  // the low bits, as protobuf takes them
    return true;
  }

  WireInput input_;
  WireReader reader_;
  CutValue value_;
  std::size_t next_ = 0;  // segment
};

InlineReader::InlineReader(InlineReader&& other) noexcept {
  *this = std::move(other);
}

InlineReader& InlineReader::operator=(InlineReader&& other) noexcept {
  const bool is_own = !other.own_.empty();
  nbytes_ = other.nbytes_;
  position_ = other.position_;
  own_ = std::move(other.own_);
  bytes_ = is_own ? std::string_view(own_) : other.bytes_;  // moving a short string moves its bytes
  decoder_ = std::move(other.decoder_);
  return *this;
}

InlineReader::~InlineReader() = default;

Result<InlineReader> InlineReader::open(const onnx::TensorProto& tensor, const CutTensors& cuts) {
  TRY_ASSIGN(const auto wanted,
             onnx_nbytes(tensor.data_type(), Shape(tensor.dims().begin(), tensor.dims().end())));
  InlineReader reader;
  reader.nbytes_ = wanted;
  if (const auto segments = cuts.find(tensor)) {
    CutValue value = value_of(tensor.data_type(), *segments);
    if (is_plain(value) && payload_bytes(value.segments.front()) != wanted) {
      return wrong_size(payload_bytes(value.segments.front()), wanted);
    }
    reader.decoder_ = std::make_unique<Decoder>(cuts.file(), std::move(value));
    return reader;
  }
  if (tensor.has_raw_data()) {
    reader.bytes_ = tensor.raw_data();
  } else {
    reader.own_ = typed_bytes(tensor);
    reader.bytes_ = reader.own_;
  }
  if (reader.bytes_.size() != wanted) {
    return wrong_size(reader.bytes_.size(), wanted);
  }
  return reader;
}

Result<InlineReader> InlineReader::open(const Model& model, std::size_t i) {
  return open(ModelAccess::inline_proto(model, i), ModelAccess::cuts(model));
}

Status InlineReader::read(std::span<std::byte> out) {
  assert(out.size() <= nbytes_ - position_);
  position_ += out.size();
  if (!decoder_) {
    if (!out.empty()) {
      std::memcpy(out.data(), bytes_.data(), out.size());
    }
    bytes_.remove_prefix(out.size());
    return {};
  }
  Status status = decoder_->read(out);
  if (status && position_ == nbytes_ && !decoder_->at_end()) {
    return fail(ErrorCode::kCorrupt, "it has more values than its dims require");
  }
  return status;
}

std::optional<InlineRange> inline_range(const onnx::TensorProto& tensor, const CutTensors& cuts) {
  const auto segments = cuts.find(tensor);
  if (!segments) {
    return std::nullopt;
  }
  const CutValue value = value_of(tensor.data_type(), *segments);
  if (!is_plain(value)) {
    return std::nullopt;
  }
  return InlineRange{value.segments.front().payload, payload_bytes(value.segments.front())};
}

std::optional<InlineRange> inline_range(const Model& model, std::size_t i) {
  return inline_range(ModelAccess::inline_proto(model, i), ModelAccess::cuts(model));
}

bool has_inline_data(const onnx::TensorProto& tensor) {
  return tensor.has_raw_data() || tensor.float_data_size() > 0 || tensor.int32_data_size() > 0 ||
         tensor.string_data_size() > 0 || tensor.int64_data_size() > 0 ||
         tensor.double_data_size() > 0 || tensor.uint64_data_size() > 0;
}

}  // namespace onnx_external
