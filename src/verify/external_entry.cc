#include "verify/external_entry.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/safe_path.h"
#include "base/text.h"
#include "onnx/external_data.h"
#include "onnx/inline_data.h"
#include "onnx_external/tensor.h"

namespace onnx_external {
namespace {

// ONNX Runtime's sign for "the offset is an address in memory": never legal in a file.
constexpr std::string_view kMemoryMarker = "*/_ORT_MEM_ADDR_/*";
// ONNX Runtime writes such keys for weights in its own layout.
constexpr std::string_view kPrepackedKey = "prepacked";
constexpr std::size_t kSha1Digits = 40;

bool is_known_key(std::string_view key) {
  return key == "location" || key == "offset" || key == "length" || key == "checksum" ||
         key.starts_with(kPrepackedKey);
}

class EntryReader {
 public:
  EntryReader(const ListedTensor& tensor, std::vector<Finding>& findings)
      : tensor_(tensor), findings_(findings) {}

  std::optional<ExternalEntry> read() {
    collect_values();
    check_location();
    read_number("offset", entry_.offset);
    const auto nbytes = computed_length();
    std::uint64_t stated = nbytes.value_or(0);
    read_number("length", stated);
    read_checksum();
    if (has_inline_data(*tensor_.proto)) {
      report(FindingCode::kInlineAndExternal, "it is external, yet data is left in the model");
    }
    if (nbytes && stated != *nbytes && readable_) {
      report(FindingCode::kWrongLength, "length " + std::to_string(stated) +
                                            ", but its type and dims need " +
                                            std::to_string(*nbytes) + " bytes");
      readable_ = false;
    }
    entry_.length = stated;
    entry_.states_length = values_.contains("length");
    return readable_ ? std::optional(std::move(entry_)) : std::nullopt;
  }

 private:
  void report(FindingCode code, std::string message) {
    findings_.push_back({code, name_in_finding(tensor_.name), name_in_finding(entry_.location),
                         std::move(message)});
  }

  void bad_entry(std::string message) {
    report(FindingCode::kBadEntry, std::move(message));
    readable_ = false;
  }

  // Loaders disagree on duplicate and unknown keys; ONNX Runtime refuses the model. Only the first
  // bad pair is reported, because a file may have any number of them.
  void collect_values() {
    for (const auto& pair : tensor_.proto->external_data()) {
      if (!readable_) {
        return;
      }
      if (!values_.emplace(pair.key(), pair.value()).second) {
        bad_entry("external_data has the key " + quote(pair.key()) + " twice");
      } else if (!is_known_key(pair.key())) {
        bad_entry("external_data has the unknown key " + quote(pair.key()));
      } else if (pair.value().empty()) {
        bad_entry("external_data has no value for " + quote(pair.key()));
      }
    }
  }

  void check_location() {
    const auto found = values_.find("location");
    if (found == values_.end()) {
      bad_entry("external_data has no location");
      return;
    }
    entry_.location = found->second;
    if (entry_.location.empty()) {
      return;
    }
    std::string why;
    if (entry_.location == kMemoryMarker) {
      why = quote(entry_.location) + ": means an address in memory";
    } else if (auto status = check_relative_location(entry_.location); !status) {
      why = status.error().message;
    }
    if (!why.empty()) {
      report(FindingCode::kBadLocation, std::move(why));
      readable_ = false;
    }
  }

  void read_number(const char* key, std::uint64_t& out) {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.empty()) {
      return;
    }
    const auto value = parse_decimal(found->second);
    if (value) {
      out = *value;
    } else {
      bad_entry(std::string(key) + " is no decimal number: " + quote(found->second));
    }
  }

  void read_checksum() {
    const auto found = values_.find("checksum");
    if (found == values_.end() || found->second.empty()) {
      return;
    }
    entry_.sha1 = ascii_lower(found->second);
    if (entry_.sha1.size() != kSha1Digits ||
        entry_.sha1.find_first_not_of("0123456789abcdef") != std::string::npos) {
      bad_entry("checksum is no SHA-1 in hex digits: " + quote(found->second));
    }
  }

  std::optional<std::uint64_t> computed_length() {
    const auto nbytes = onnx_nbytes(tensor_.proto->data_type(), dims_of(*tensor_.proto));
    if (nbytes) {
      return *nbytes;
    }
    // For an element type that is newer than our table, only the stated length is known.
    const bool is_newer = tensor_.proto->data_type() > onnx::TensorProto::BFLOAT16 &&
                          nbytes.error().code == ErrorCode::kUnsupported;
    if (!is_newer || !values_.contains("length")) {
      bad_entry(nbytes.error().message);
    }
    return std::nullopt;
  }

  const ListedTensor& tensor_;
  std::vector<Finding>& findings_;
  std::map<std::string_view, std::string_view> values_;
  ExternalEntry entry_;
  bool readable_ = true;
};

}  // namespace

std::string name_in_finding(std::string_view name) {
  return name.size() <= kMaxQuotedBytes ? std::string(name)
                                        : std::string(name.substr(0, kMaxQuotedBytes)) + "...";
}

std::optional<ExternalEntry> read_entry(const ListedTensor& tensor,
                                        std::vector<Finding>& findings) {
  return EntryReader(tensor, findings).read();
}

}  // namespace onnx_external
