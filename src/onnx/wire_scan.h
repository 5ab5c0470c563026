// Finds the data fields of the tensors in a serialized ModelProto without reading their bytes, and
// plans how to replace them by other bytes: the lengths of the enclosing messages change, and
// everything else stays byte for byte.
//
// Source of the field numbers: onnx.proto. It finds the tensors of all graphs, subgraphs, functions
// (with the default values of their attributes) and training graphs, including sparse tensors and
// those in attributes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "onnx/wire_reader.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The fields of TensorProto that hold numbers.
inline constexpr std::uint8_t kFloatData = 4;
inline constexpr std::uint8_t kInt32Data = 5;
inline constexpr std::uint8_t kInt64Data = 7;
inline constexpr std::uint8_t kRawData = 9;
inline constexpr std::uint8_t kDoubleData = 10;
inline constexpr std::uint8_t kUint64Data = 11;

// Appends the tag and the length of a raw_data field of `bytes` bytes.
void append_raw_data_header(std::string& out, std::uint64_t bytes);

// A data field, or a run of adjacent unpacked values of one field. Numbers are byte offsets in the
// input, which has at most kMaxMessageBytes.
struct WireSegment {
  std::uint32_t begin = 0;    // of the tag
  std::uint32_t payload = 0;  // packed: of the first byte of data
  std::uint32_t end = 0;
  std::uint8_t field = 0;
  bool packed = false;  // the data is one run of bytes; otherwise each value has its own tag
};

// A message that holds a tensor, or the tensor itself.
struct WireMessage {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t length_at = 0;  // of its length
  std::uint32_t body = 0;
  std::uint32_t end = 0;
  std::uint32_t parent = kNone;  // an earlier one; kNone: the model itself
};

struct WireTensor {
  std::uint32_t message = 0;
  std::uint32_t first_segment = 0;
  std::uint32_t segment_count = 0;
};

// Each list is in the order of the input.
struct WireScan {
  std::vector<WireMessage> messages;
  std::vector<WireTensor> tensors;
  std::vector<WireSegment> segments;

  [[nodiscard]] std::span<const WireSegment> segments_of(const WireTensor& tensor) const {
    return std::span(segments).subspan(tensor.first_segment, tensor.segment_count);
  }
};

// Selects the tensors whose data fields together have this many bytes.
struct WireFilter {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = kMaxMessageBytes;
};

// The limit on segments of one tensor. No known writer splits the data of a tensor at all.
inline constexpr std::size_t kMaxWireSegments = 64;

// Takes time linear in the bytes that are not data, and memory for the listed tensors. Skips
// messages of fewer bytes than filter.least_bytes. kCorrupt, with the offset, for anything that is
// not a protobuf message. kUnsupported past kMaxMessageDepth and kMaxWireSegments, and if a message
// repeats a tensor field that is not repeated (protobuf would merge the two).
[[nodiscard]] Result<WireScan> scan_model(const WireInput& input, const WireFilter& filter);

// Replaces the bytes [begin, end) of the input, which are inside `message`, by `bytes` other bytes.
struct WireEdit {
  std::uint32_t message = 0;  // index into WireScan::messages
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t bytes = 0;
};

// A step of writing the edited model: copy bytes of the input, write a message's length, or write
// the new bytes of an edit.
struct WireStep {
  enum class Kind : std::uint8_t { kCopy, kLength, kEdit };
  Kind kind = Kind::kCopy;
  std::uint64_t from = 0;   // kCopy: offset in the input; kLength: the length; kEdit: its index
  std::uint64_t bytes = 0;  // of the output
};

// Returns the steps that write the edited model. Requires: `edits` are in the order of the input,
// and none is inside another. kUnsupported if the result has more than kMaxMessageBytes.
[[nodiscard]] Result<std::vector<WireStep>> rewrite(const WireScan& scan,
                                                    std::span<const WireEdit> edits,
                                                    std::uint64_t input_bytes);

}  // namespace onnx_external
