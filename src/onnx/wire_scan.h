// Finds the data fields of the tensors in a serialized ModelProto without reading the data, and
// plans how to replace them by other bytes. A replacement also changes the lengths of the enclosing
// messages. All other bytes stay the same.
//
// Source of the field numbers: onnx.proto. Tensors are found in all graphs, subgraphs, functions
// (including default values of attributes) and training graphs, including sparse tensors and
// tensors in attributes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "onnx/wire_reader.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The field numbers of the TensorProto fields that can hold numeric data.
inline constexpr std::uint8_t kFloatData = 4;
inline constexpr std::uint8_t kInt32Data = 5;
inline constexpr std::uint8_t kInt64Data = 7;
inline constexpr std::uint8_t kRawData = 9;
inline constexpr std::uint8_t kDoubleData = 10;
inline constexpr std::uint8_t kUint64Data = 11;

// Appends the tag and the length of a raw_data field of `bytes` bytes.
void append_raw_data_header(std::string& out, std::uint64_t bytes);

// A data field, or a run of adjacent unpacked values of one field. The positions are byte offsets
// in the input, which has at most kMaxMessageBytes.
struct WireSegment {
  std::uint32_t begin = 0;    // offset of the tag
  std::uint32_t payload = 0;  // packed: offset of the first byte of data
  std::uint32_t end = 0;
  std::uint8_t field = 0;
  bool packed = false;  // true: the data is one run of bytes; false: each value has a tag
};

// A message that holds a tensor, or the tensor itself.
struct WireMessage {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t length_at = 0;  // offset of the message's length
  std::uint32_t body = 0;
  std::uint32_t end = 0;
  std::uint32_t parent = kNone;  // index of an earlier message; kNone for the model itself
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

// Selects tensors by the total number of bytes in their data fields.
struct WireFilter {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = kMaxMessageBytes;
};

// The maximum number of segments of one tensor. Known programs write the data of a tensor as one
// segment.
inline constexpr std::size_t kMaxWireSegments = 64;

// Finds the data fields of the tensors that `filter` selects. Skips messages of fewer bytes than
// filter.least_bytes. Takes linear time in the number of bytes that are not data, and needs memory
// for the listed tensors. Fails with kCorrupt if the input is not a protobuf message; the error
// states the offset. Fails with kUnsupported beyond kMaxMessageDepth and kMaxWireSegments, and if a
// message has two values for a tensor field that is not repeated, because protobuf would merge
// them.
[[nodiscard]] Result<WireScan> scan_model(const WireInput& input, const WireFilter& filter);

// Replaces the bytes [begin, end) of the input, which are inside `message`, by `bytes` new bytes.
struct WireEdit {
  std::uint32_t message = 0;  // index into WireScan::messages
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t bytes = 0;
};

// A step in writing the edited model: copy bytes of the input, write the length of a message, or
// write the new bytes of an edit.
struct WireStep {
  enum class Kind : std::uint8_t { kCopy, kLength, kEdit };
  Kind kind = Kind::kCopy;
  // Offset in the input (kCopy), length (kLength), or index of the edit (kEdit).
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;  // number of bytes written to the output
};

// Returns the steps that write the edited model. Fails with kUnsupported if the result would have
// more than kMaxMessageBytes. Requires: `edits` are in the order of the input, and no edit is
// inside another.
[[nodiscard]] Result<std::vector<WireStep>> rewrite(const WireScan& scan,
                                                    std::span<const WireEdit> edits,
                                                    std::uint64_t input_bytes);

}  // namespace onnx_external
