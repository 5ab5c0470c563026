// Reads the external_data entries of a tensor, and writes them in a normalized form.
//
// The rules follow docs/ExternalData.md of the ONNX specification, and the behavior of onnx and
// ONNX Runtime. An unambiguous entry is accepted if onnx or ONNX Runtime accepts it. If only one of
// them accepts it, the entry gets a DataRemark. docs/formats.md has a table of the rules.
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

// Parses a decimal number without sign, spaces or prefix, up to 2^63-1. Nullopt for other text.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text);

// The kinds of errors in the entries of an external tensor.
enum class EntryFault : std::uint8_t {
  kEntry,      // a key or a value is invalid, or type and dims do not determine the size
  kLocation,   // the location is not a path inside the model's folder
  kLength,     // the length differs from the size that type and dims determine
  kRange,      // the range ends past 2^63-1
  kInlineToo,  // the tensor also has data inside the model
};

// The entries of one external tensor.
struct ExternalEntry {
  std::string location;  // see ExternalTensor::location
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // the size that type and dims determine
  std::string sha1;          // "checksum" in lower case; empty if it is not stated or not a SHA-1
  DataRemarks remarks;
  std::vector<std::pair<EntryFault, Error>> faults;  // each error also says how to proceed

  // Returns whether the entries state a range that can be read.
  [[nodiscard]] bool has_range() const;
};

// Applies plain_location() to a location in a model. The error, kInvalidArgument, says what to
// write instead.
[[nodiscard]] Result<std::string> data_location(std::string_view spelled);

[[nodiscard]] ExternalEntry read_external_entry(const onnx::TensorProto& tensor);

// Reads the entries of a tensor when a model is loaded. The caller fills in name, place and graph.
// A location outside the folder is not an error here, so code that reads the data must reject it.
// Errors: kCorrupt, kUnsupported.
[[nodiscard]] Result<ExternalTensor> read_external_tensor(const onnx::TensorProto& tensor);

// Makes `tensor` external: writes location, offset, length and, if given, checksum, and removes the
// data and entries that the tensor had.
void write_external_entries(const ExternalRef& ref, onnx::TensorProto& tensor);

// Removes the data from every field that can hold data, and all external_data entries.
void clear_tensor_data(onnx::TensorProto& tensor);

// Returns whether the tensor has inline or external data, or is empty.
[[nodiscard]] bool has_data(const onnx::TensorProto& tensor);

}  // namespace onnx_external
