// Reads the external_data entries of a tensor, and writes them in a normalized form. Saving,
// verifying, cutting and inspecting all use it.
//
// Source of the rules: docs/ExternalData.md of the ONNX specification, and what onnx and ONNX
// Runtime read. An entry that at least one of the two reads is accepted if it is unambiguous; if
// the other refuses it, it gets a DataRemark. docs/formats.md has the table.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/tensor_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Parses a decimal number without sign, space or prefix, at most 2^63-1. Nullopt for other text.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text);

// The kinds of errors in the entries of an external tensor.
enum class EntryFault : std::uint8_t {
  kEntry,      // a key or a value breaks the rules; type or dims have no size
  kLocation,   // the location is not a path inside the model's folder
  kLength,     // the length is not the size of type and dims
  kRange,      // the range ends past 2^63-1
  kInlineToo,  // the tensor also has data in the model
};

// The entries of one external tensor.
struct ExternalEntry {
  std::string location;  // as ExternalTensor::location
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // bytes of type and dims
  std::string sha1;          // "checksum" in lower case; empty = not stated, or another kind
  DataRemarks remarks;
  std::vector<std::pair<EntryFault, Error>> faults;  // the errors also say what to do

  // Returns whether there is a range that can be read.
  [[nodiscard]] bool has_range() const;
};

// plain_location() for the location in a model. The error, kInvalidArgument, says what to write
// instead.
[[nodiscard]] Result<std::string> data_location(std::string_view spelled);

[[nodiscard]] ExternalEntry read_external_entry(const onnx::TensorProto& tensor);

// The same for loading a model. The caller fills in name, place and graph. A location that leads
// out of the folder is not an error yet; code that reads the data must refuse it. kCorrupt,
// kUnsupported.
[[nodiscard]] Result<ExternalTensor> read_external_tensor(const onnx::TensorProto& tensor);

// Makes `tensor` external: writes location, offset, length (and checksum) and removes whatever
// data or entries it had.
void write_external_entries(const ExternalRef& ref, onnx::TensorProto& tensor);

// Removes data in every field that can hold some, and all external_data entries.
void clear_tensor_data(onnx::TensorProto& tensor);

// True if the tensor's bytes are recorded, inline or external, or if it has none.
[[nodiscard]] bool has_data(const onnx::TensorProto& tensor);

}  // namespace onnx_external
