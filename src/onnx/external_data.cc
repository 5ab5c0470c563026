#include "onnx/external_data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "base/safe_path.h"
#include "base/text.h"
#include "onnx/inline_data.h"
#include "onnx_external/tensor.h"

namespace onnx_external {
namespace {

// ONNX Runtime's marker for an offset that is an address in memory. The marker is never valid in a
// file.
constexpr std::string_view kMemoryMarker = "*/_ORT_MEM_ADDR_/*";
constexpr std::string_view kPrepackedKey = "prepacked";  // "prepacked_0" and so on
constexpr std::size_t kSha1Digits = 40;
constexpr std::array<std::string_view, 4> kKeys = {"location", "offset", "length", "checksum"};

// Commands to type. They hold nothing of the model, whose names could say anything to a shell.
constexpr std::string_view kSaveByOnnx =
    "; onnx can read it, so this command writes it again: python -c \"import onnx; "
    "onnx.save(onnx.load('MODEL.onnx'), 'NEW.onnx', save_as_external_data=True)\"";
constexpr std::string_view kSetLocation =
    "; copy the file to a plain name in the model's folder, and set the location to that name: "
    "python -c \"import onnx; m = onnx.load('MODEL.onnx', load_external_data=False); [setattr(e, "
    "'value', 'NEW') for t in m.graph.initializer for e in t.external_data if e.value == 'OLD']; "
    "onnx.save(m, 'MODEL.onnx')\"";
constexpr std::string_view kExportAgain = "; export the model again";

// Returns whether Python's int(), which onnx uses, can read the text.
bool is_number_to_onnx(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  const std::size_t end = text.find_last_not_of(kSpace) + 1;
  text = text.substr(first, std::max(first, end) - first);
  text.remove_prefix(text.starts_with('+') ? 1 : 0);
  return parse_decimal(text).has_value();
}

class EntryReader {
 public:
  explicit EntryReader(const onnx::TensorProto& tensor) : tensor_(tensor) {}

  ExternalEntry read() {
    collect_values();
    read_location();
    read_number("offset", entry_.offset);
    read_length();
    read_checksum();
    if (has_inline_data(tensor_)) {
      report(EntryFault::kInlineToo,
             "it is external, but the model also contains data for it" + std::string(kSaveByOnnx));
    }
    constexpr std::uint64_t kMaxEnd = std::numeric_limits<std::int64_t>::max();
    if (entry_.offset > kMaxEnd - std::min(entry_.length, kMaxEnd)) {
      report(EntryFault::kRange,
             "external_data offset + length exceeds 2^63-1" + std::string(kExportAgain));
    }
    return std::move(entry_);
  }

 private:
  void report(EntryFault fault, std::string message) {
    entry_.faults.emplace_back(fault, Error{ErrorCode::kCorrupt, std::move(message)});
  }

  // Accepts a key that ONNX does not define but that occurs in practice.
  bool take_other_key(std::string_view key) {
    if (key.starts_with(kPrepackedKey)) {
      entry_.remarks.add(DataRemark::kPrepacked);
      return true;
    }
    if (key == "basepath") {
      entry_.remarks.add(DataRemark::kBasepath);
      return true;
    }
    return false;
  }

  // Only the first bad pair is reported, because a file may have any number of them.
  void collect_values() {
    for (const auto& pair : tensor_.external_data()) {
      const std::string& key = pair.key();
      const auto known = std::find(kKeys.begin(), kKeys.end(), key);
      if (known == kKeys.end() && take_other_key(key)) {
        continue;
      }
      if (known == kKeys.end()) {
        return bad_key(key, "is unknown, and ONNX Runtime rejects it", kSaveByOnnx);
      }
      auto& value = values_[static_cast<std::size_t>(known - kKeys.begin())];
      if (value && *value != pair.value()) {
        return bad_key(key, "occurs twice with different values; loaders use the last one",
                       kSaveByOnnx);
      }
      if (pair.value().empty()) {
        return bad_key(key, "has no value", kExportAgain);
      }
      if (value) {
        entry_.remarks.add(DataRemark::kDuplicateKeys);
      }
      value = pair.value();
    }
  }

  void bad_key(std::string_view key, std::string_view what, std::string_view fix) {
    std::string message = "external_data: the key " + quote(key) + " ";
    report(EntryFault::kEntry, message.append(what).append(fix));
  }

  [[nodiscard]] std::string_view value_of(std::string_view key) const {
    const auto known = std::find(kKeys.begin(), kKeys.end(), key);
    return values_[static_cast<std::size_t>(known - kKeys.begin())].value_or("");
  }

  void read_location() {
    const std::string_view spelled = value_of("location");
    entry_.location = spelled;
    if (spelled.empty()) {
      if (entry_.faults.empty()) {  // otherwise it may stand behind the first bad pair
        report(EntryFault::kEntry, "external_data has no location" + std::string(kExportAgain));
      }
      return;
    }
    auto plain = data_location(spelled);
    if (!plain) {
      return report(EntryFault::kLocation, std::move(plain).error().message);
    }
    entry_.location = *std::move(plain);
    if (entry_.location.find("..") != std::string::npos) {
      entry_.remarks.add(DataRemark::kDots);
    }
  }

  // Reads a number. Returns whether the key is stated and its value is a number.
  bool read_number(std::string_view key, std::uint64_t& out) {
    const std::string_view text = value_of(key);
    const auto value = parse_decimal(text);
    if (value) {
      out = *value;
    } else if (!text.empty()) {
      report(EntryFault::kEntry,
             "external_data " + std::string(key) + " " + quote(text) +
                 " is not a plain decimal number" +
                 std::string(is_number_to_onnx(text) ? kSaveByOnnx : kExportAgain));
    }
    return value.has_value();
  }

  // The number of bytes by type and dims; a stated length must agree. For an element type that is
  // newer than our table only the stated length is known.
  void read_length() {
    const bool has_length = !value_of("length").empty();
    std::uint64_t stated = 0;
    const bool is_number = read_number("length", stated);
    if (!has_length) {
      entry_.remarks.add(DataRemark::kNoLength);
    }
    const Shape dims(tensor_.dims().begin(), tensor_.dims().end());
    const auto count = element_count(dims);
    const auto nbytes = count ? onnx_nbytes(tensor_.data_type(), dims) : fail(count.error());
    if (!nbytes) {
      const bool is_newer = count && tensor_.data_type() > onnx::TensorProto::BFLOAT16 &&
                            nbytes.error().code == ErrorCode::kUnsupported;
      if (!is_newer || !has_length) {
        entry_.faults.emplace_back(EntryFault::kEntry, nbytes.error());
      }
      entry_.length = stated;
      return;
    }
    entry_.length = *nbytes;
    if (is_number && stated == 0 && *nbytes > 0) {
      entry_.remarks.add(DataRemark::kZeroLength);
    } else if (is_number && stated != *nbytes) {
      report(EntryFault::kLength, "external_data length is " + std::to_string(stated) + ", but " +
                                      std::string(onnx_type_name(tensor_.data_type())) + " " +
                                      shape_text(dims) + " takes " + std::to_string(*nbytes) +
                                      " bytes" + std::string(kExportAgain));
    }
  }

  void read_checksum() {
    std::string sha1 = ascii_lower(value_of("checksum"));
    const bool is_sha1 = sha1.size() == kSha1Digits &&
                         sha1.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (is_sha1) {
      entry_.sha1 = std::move(sha1);
    } else if (!sha1.empty()) {
      entry_.remarks.add(DataRemark::kOtherChecksum);
    }
  }

  const onnx::TensorProto& tensor_;
  std::array<std::optional<std::string_view>, kKeys.size()> values_;
  ExternalEntry entry_;
};

void add_entry(std::string_view key, std::string value, onnx::TensorProto& tensor) {
  auto* entry = tensor.add_external_data();
  entry->set_key(std::string(key));
  entry->set_value(std::move(value));
}

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  // For unsigned numbers, from_chars rejects signs, spaces and prefixes.
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (error != std::errc{} || end != text.data() + text.size() || value > kMax) {
    return std::nullopt;
  }
  return value;
}

Result<std::string> data_location(std::string_view spelled) {
  if (spelled == kMemoryMarker) {
    return fail(ErrorCode::kInvalidArgument,
                quote(spelled) +
                    ": stands for an address in the memory of a process that ran ONNX Runtime" +
                    std::string(kExportAgain));
  }
  auto plain = plain_location(spelled);
  if (!plain) {
    return fail(plain.error().code, plain.error().message + std::string(kSetLocation));
  }
  return plain;
}

bool ExternalEntry::has_range() const {
  return std::all_of(faults.begin(), faults.end(),
                     [](const auto& fault) { return fault.first == EntryFault::kInlineToo; });
}

ExternalEntry read_external_entry(const onnx::TensorProto& tensor) {
  return EntryReader(tensor).read();
}

Result<ExternalTensor> read_external_tensor(const onnx::TensorProto& tensor) {
  ExternalEntry entry = read_external_entry(tensor);
  for (auto& [fault, error] : entry.faults) {
    if (fault != EntryFault::kLocation) {
      return fail(std::move(error));
    }
  }
  ExternalTensor external;
  external.data_type = tensor.data_type();
  external.dims.assign(tensor.dims().begin(), tensor.dims().end());
  external.location = std::move(entry.location);
  external.offset = entry.offset;
  external.length = entry.length;
  external.remarks = entry.remarks;
  return external;
}

void clear_tensor_data(onnx::TensorProto& tensor) {
  tensor.clear_segment();
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_string_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_raw_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

void write_external_entries(const ExternalRef& ref, onnx::TensorProto& tensor) {
  clear_tensor_data(tensor);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  add_entry("location", ref.location, tensor);
  add_entry("offset", std::to_string(ref.offset), tensor);
  add_entry("length", std::to_string(ref.length), tensor);
  if (!ref.checksum.empty()) {
    add_entry("checksum", ref.checksum, tensor);
  }
}

bool has_data(const onnx::TensorProto& tensor) {
  // Entries count only where the tensor says that its data is external.
  const bool is_external = tensor.data_location() == onnx::TensorProto::EXTERNAL;
  return (is_external && tensor.external_data_size() > 0) || !tensor.raw_data().empty() ||
         tensor.float_data_size() > 0 || tensor.int32_data_size() > 0 ||
         tensor.string_data_size() > 0 || tensor.int64_data_size() > 0 ||
         tensor.double_data_size() > 0 || tensor.uint64_data_size() > 0 ||
         std::find(tensor.dims().begin(), tensor.dims().end(), 0) != tensor.dims().end();
}

}  // namespace onnx_external
