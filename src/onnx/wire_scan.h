// Finds the data fields of the tensors in a serialized ModelProto without reading their bytes, and
// gives the message another form with other bytes in their place: the lengths of what encloses
// them are put right, everything else stays byte for byte.
//
// Source of the field numbers: onnx.proto. The tensors found are those of all graphs, their
// subgraphs, functions (default values of their attributes, too) and training graphs, sparse ones
// and attributes.
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

// Tag and length of a raw_data field of so many bytes.
void append_raw_data_header(std::string& out, std::uint64_t bytes);

// A data field, or a run of neighbouring single values of one. Places are bytes in the input, which
// has at most kMaxMessageBytes.
struct WirePiece {
  std::uint32_t begin = 0;    // of its tag
  std::uint32_t payload = 0;  // packed: of its bytes
  std::uint32_t end = 0;
  std::uint8_t field = 0;
  bool packed = false;  // one run of bytes; else a tag before each value
};

// A message that a tensor stands in, or the tensor itself.
struct WireMessage {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t length_at = 0;  // of the number before it that says how long it is
  std::uint32_t body = 0;
  std::uint32_t end = 0;
  std::uint32_t parent = kNone;  // an earlier one; kNone: the model itself
};

struct WireTensor {
  std::uint32_t message = 0;
  std::uint32_t first_piece = 0;
  std::uint32_t piece_count = 0;
};

// By rising places.
struct WireScan {
  std::vector<WireMessage> messages;
  std::vector<WireTensor> tensors;
  std::vector<WirePiece> pieces;

  [[nodiscard]] std::span<const WirePiece> pieces_of(const WireTensor& tensor) const {
    return std::span(pieces).subspan(tensor.first_piece, tensor.piece_count);
  }
};

// Which tensors are listed: those whose data fields have so many bytes together.
struct WireFilter {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = kMaxMessageBytes;
};

// No writer splits the data of a tensor at all.
inline constexpr std::size_t kMaxWirePieces = 64;

// Linear in the bytes that are no payload; memory: the listed tensors. Messages of fewer bytes than
// the filter asks for are passed over unread. kCorrupt for what is no protobuf message, with its
// place; kUnsupported past kMaxMessageDepth and kMaxWirePieces, and for a tensor that its parent
// has twice (protobuf would merge them).
[[nodiscard]] Result<WireScan> scan_model(const WireInput& input, const WireFilter& filter);

// Puts `bytes` other bytes in the place of [begin, end) of a message.
struct WireEdit {
  std::uint32_t message = 0;  // index into WireScan::messages
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t bytes = 0;
};

// The new form, piece by piece: bytes of the input that stay, a length, or what an edit puts there.
struct WireStep {
  enum class Kind : std::uint8_t { kCopy, kLength, kEdit };
  Kind kind = Kind::kCopy;
  std::uint64_t from = 0;   // kCopy: place in the input; kLength: the number; kEdit: its index
  std::uint64_t bytes = 0;  // of the new form
};

// `edits` by rising places, none inside another. kUnsupported when the result has more than
// kMaxMessageBytes.
[[nodiscard]] Result<std::vector<WireStep>> rewrite(const WireScan& scan,
                                                    std::span<const WireEdit> edits,
                                                    std::uint64_t input_bytes);

}  // namespace onnx_external
