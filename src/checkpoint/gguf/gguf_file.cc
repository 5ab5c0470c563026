#include "checkpoint/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/block_types.h"
#include "checkpoint/gguf/gguf_cursor.h"

namespace onnx_external {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kSwappedVersions = 0xffff;  // a version has its low half set
constexpr std::uint64_t kUsualAlignment = 32;
constexpr std::uint64_t kShortItems = 4096;  // arrays with a number for each layer
constexpr std::uint32_t kMaxGgufDims = 4;
constexpr std::string_view kAlignment = "general.alignment";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTokenTypes = "tokenizer.ggml.token_type";

// The bytes of a value by its type; 0 for texts and arrays.
constexpr std::array<std::uint64_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
// The least bytes of an entry: the length of a key, a type, a value.
constexpr std::uint64_t kLeastEntry = 8 + 4 + 1;
// A name's length, the number of dimensions, one dimension, a type, an offset.
constexpr std::uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8;

template <typename Signed>
std::uint64_t extended(std::unsigned_integral auto bits) {
  return static_cast<std::uint64_t>(std::int64_t{static_cast<Signed>(bits)});
}

Result<std::uint64_t> read_number(GgufCursor& from, GgufType type) {
  switch (kSizes.at(static_cast<std::size_t>(type))) {
    case 1: {
      TRY_ASSIGN(const auto bits, from.number<std::uint8_t>());
      if (type == GgufType::kBool && bits > 1) {
        return corrupt("a bool is " + std::to_string(bits) + ", neither 0 nor 1");
      }
      return type == GgufType::kInt8 ? extended<std::int8_t>(bits) : std::uint64_t{bits};
    }
    case 2: {
      TRY_ASSIGN(const auto bits, from.number<std::uint16_t>());
      return type == GgufType::kInt16 ? extended<std::int16_t>(bits) : std::uint64_t{bits};
    }
    case 4: {
      TRY_ASSIGN(const auto bits, from.number<std::uint32_t>());
      if (type == GgufType::kFloat32) {
        return std::bit_cast<std::uint64_t>(double{std::bit_cast<float>(bits)});
      }
      return type == GgufType::kInt32 ? extended<std::int32_t>(bits) : std::uint64_t{bits};
    }
    default:
      return from.number<std::uint64_t>();
  }
}

// Detects duplicate tokens in a vocabulary without storing its strings.
class TokenSet {
 public:
  Status add(const std::string& token) {
    if (!token.empty()) {
      hashes_.push_back(NameHash{}(token));
    }
    return {};
  }

  Status check() {
    std::sort(hashes_.begin(), hashes_.end());
    return std::adjacent_find(hashes_.begin(), hashes_.end()) == hashes_.end()
               ? Status()
               : corrupt("the vocabulary has a token twice");
  }

 private:
  std::vector<std::size_t> hashes_;
};

class HeaderReader {
 public:
  HeaderReader(std::shared_ptr<const SourceFile> file, GgufArrays arrays)
      : from_(*file, kMaxGgufHeader), arrays_(arrays) {
    out_.file = std::move(file);
  }

  Result<GgufFile> read() {
    TRY(read_start());
    TRY_ASSIGN(const auto tensors, from_.number<std::uint64_t>());
    TRY_ASSIGN(const auto keys, from_.number<std::uint64_t>());
    TRY_IN("the number of keys", check_count(keys, kMaxGgufKeys, kLeastEntry));
    for (std::uint64_t i = 0; i < keys; ++i) {
      TRY_IN(fmt::format("key {}", i), read_entry());
    }
    TRY(check_metadata());
    TRY_IN("the number of tensors", check_count(tensors, kMaxGgufTensors, kLeastTensor));
    for (std::uint64_t i = 0; i < tensors; ++i) {
      TRY_IN(fmt::format("tensor {}", i), read_tensor());
    }
    TRY(place_tensors());
    return std::move(out_);
  }

 private:
  Status read_start() {
    std::array<std::uint8_t, kMagic.size()> magic{};
    for (std::uint8_t& byte : magic) {
      TRY_ASSIGN(byte, from_.number<std::uint8_t>());
    }
    if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) {
      return corrupt("does not begin with 'GGUF'");
    }
    TRY_ASSIGN(auto version, from_.number<std::uint32_t>());
    if ((version & kSwappedVersions) == 0) {
      version = __builtin_bswap32(version);
      out_.order = ByteOrder::kBig;
      from_.set_swapped(true);
    }
    if (version != 2 && version != 3) {
      return unsupported(fmt::format(
          "GGUF version {}; only versions 2 and 3 can be read: convert the model again", version));
    }
    out_.version = version;
    return {};
  }

  Status check_count(std::uint64_t count, std::uint64_t most, std::uint64_t each) const {
    TRY(from_.expect(count, each));
    return count <= most ? Status()
                         : unsupported(fmt::format("{}; at most {} are read", count, most));
  }

  // --- metadata --------------------------------------------------------------------------------

  Status read_entry() {
    TRY_ASSIGN(auto key, from_.text(kMaxGgufKeyBytes));
    if (key.empty() || !is_utf8(key) || key.find('\0') != std::string::npos) {
      return corrupt("its name " + quote(key) + " is not UTF-8 text");
    }
    if (!keys_.insert(key).second) {
      return corrupt(quote(key) + " occurs twice");
    }
    TRY_ASSIGN_IN(quote(key), auto value, read_value(key));
    out_.metadata.entries.push_back({std::move(key), std::move(value)});
    return {};
  }

  Result<GgufType> read_type() {
    TRY_ASSIGN(const auto number, from_.number<std::uint32_t>());
    if (number >= kSizes.size()) {
      return corrupt(fmt::format("its type is {}, but the format has types 0 to {}", number,
                                 kSizes.size() - 1));
    }
    return static_cast<GgufType>(number);
  }

  Result<GgufValue> read_value(std::string_view key) {
    GgufValue value;
    TRY_ASSIGN(value.type, read_type());
    if (value.type == GgufType::kArray) {
      value.is_array = true;
      TRY_ASSIGN(value.type, read_type());
      if (value.type == GgufType::kArray) {
        return unsupported("an array of arrays");
      }
      TRY_ASSIGN(value.count, from_.number<std::uint64_t>());
    }
    if (value.type == GgufType::kString) {
      TRY(read_texts(key, value));
    } else {
      TRY(read_numbers(value));
    }
    return value;
  }

  // Returns whether the items of an array are kept. The items of all arrays together are limited.
  Result<bool> keeps(const GgufValue& value) {
    if (!value.is_array || value.count == 0) {
      return true;
    }
    if (arrays_ == GgufArrays::kShort) {
      return value.type != GgufType::kString && value.count <= kShortItems;
    }
    items_ += value.count;
    if (items_ > kMaxGgufItems) {
      return unsupported(fmt::format("arrays with more than {} items in total", kMaxGgufItems));
    }
    return true;
  }

  Status read_texts(std::string_view key, GgufValue& value) {
    TRY(from_.expect(value.count, sizeof(std::uint64_t)));
    TRY_ASSIGN(const bool keep, keeps(value));
    TokenSet tokens;
    const bool is_vocabulary = key == kTokens && value.is_array;
    for (std::uint64_t i = 0; i < value.count; ++i) {
      if (!keep && !is_vocabulary) {
        TRY_ASSIGN(const auto size, from_.number<std::uint64_t>());
        TRY(from_.skip(size));
        continue;
      }
      TRY_ASSIGN(auto text, from_.text(kMaxGgufHeader));
      TRY(is_vocabulary ? tokens.add(text) : Status());
      if (keep) {
        value.texts.push_back(std::move(text));
      }
    }
    return tokens.check();
  }

  Status read_numbers(GgufValue& value) {
    const std::uint64_t each = kSizes.at(static_cast<std::size_t>(value.type));
    TRY(from_.expect(value.count, each));
    TRY_ASSIGN(const bool keep, keeps(value));
    if (!keep) {
      return from_.skip(value.count * each);
    }
    value.numbers.reserve(static_cast<std::size_t>(value.count));
    for (std::uint64_t i = 0; i < value.count; ++i) {
      TRY_ASSIGN(const auto number, read_number(from_, value.type));
      value.numbers.push_back(number);
    }
    return {};
  }

  Status check_metadata() {
    if (const GgufValue* const value = out_.metadata.find(kAlignment)) {
      if (value->is_array || value->type != GgufType::kUInt32 ||
          !std::has_single_bit(value->numbers.front())) {
        return corrupt(quote(kAlignment) + " is not a power of two of the type uint32");
      }
      alignment_ = value->numbers.front();
    }
    return check_vocabulary();
  }

  // A list that goes with the tokens has as many items.
  Status check_vocabulary() {
    const GgufValue* const tokens = out_.metadata.find(kTokens);
    if (tokens == nullptr) {
      return {};
    }
    if (!tokens->is_array || tokens->type != GgufType::kString) {
      return corrupt(quote(kTokens) + " is not an array of strings");
    }
    out_.tokens = tokens->count;
    for (const std::string_view key : {kScores, kTokenTypes}) {
      const GgufValue* const list = out_.metadata.find(key);
      const bool is_list = list != nullptr && list->is_array && list->type != GgufType::kString &&
                           list->is_float() == (key == kScores);
      if (list != nullptr && (!is_list || list->count != tokens->count)) {
        return corrupt(fmt::format("{} is {}, but there are {} tokens", quote(key),
                                   gguf_type_text(*list), tokens->count));
      }
    }
    return {};
  }

  // --- tensors ---------------------------------------------------------------------------------

  Status read_tensor() {
    GgufTensor tensor;
    TRY_ASSIGN(tensor.name, from_.text(kMaxGgufNameBytes));
    if (tensor.name.empty() || !is_utf8(tensor.name) ||
        tensor.name.find('\0') != std::string::npos) {
      return corrupt("its name " + quote(tensor.name) + " is not UTF-8 text");
    }
    TRY_IN(quote(tensor.name), read_form(tensor));
    if (!names_.insert(tensor.name).second) {
      return corrupt(quote(tensor.name) + " occurs twice");
    }
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  Status read_form(GgufTensor& tensor) {
    TRY_ASSIGN(const auto dims, from_.number<std::uint32_t>());
    if (dims == 0 || dims > kMaxGgufDims) {
      return corrupt(
          fmt::format("has {} dimensions; the format allows 1 to {}", dims, kMaxGgufDims));
    }
    for (std::uint32_t i = 0; i < dims; ++i) {
      TRY_ASSIGN(const auto dim, from_.number<std::uint64_t>());
      if (dim == 0 || !std::in_range<std::int64_t>(dim)) {
        return corrupt(fmt::format("dimension {} is {}", i, dim));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(dim));
    }
    TRY_ASSIGN(tensor.type, from_.number<std::uint32_t>());
    const BlockType* const type = find_block_type(tensor.type);
    if (type == nullptr) {
      return unsupported(
          fmt::format("its type {} is unknown, or was removed from ggml", tensor.type));
    }
    TRY_ASSIGN(tensor.offset, from_.number<std::uint64_t>());
    TRY_ASSIGN(const auto values, element_count(tensor.shape));
    const auto row = static_cast<std::uint64_t>(tensor.shape.back());
    if (row % type->values != 0) {
      return corrupt(
          fmt::format("rows of {} values cannot be divided into blocks of {}, which have {} values",
                      row, type->name, type->values));
    }
    const auto bytes = checked_mul(values / type->values, std::uint64_t{type->bytes});
    if (!bytes || !std::in_range<std::int64_t>(*bytes)) {
      return corrupt("shape " + shape_text(tensor.shape) + " makes more than 2^63 bytes");
    }
    tensor.bytes = *bytes;
    return {};
  }

  std::optional<std::uint64_t> padded(std::uint64_t bytes) const {
    const auto more = checked_add(bytes, alignment_ - 1);
    return more ? std::optional(*more & ~(alignment_ - 1)) : std::nullopt;
  }

  // Tensors follow each other in any order, without gaps except for alignment. A type that
  // misstates the bytes of a tensor therefore causes a gap or an overlap.
  Status place_tensors() {
    const auto data = padded(from_.at());
    if (!data || (!out_.tensors.empty() && *data > out_.file->size())) {
      return corrupt(
          fmt::format("the data of its tensors should begin at byte {}, but the file has {} bytes; "
                      "copy or download the file again",
                      data.value_or(0), out_.file->size()));
    }
    std::vector<GgufTensor*> order;
    for (GgufTensor& tensor : out_.tensors) {
      order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    std::uint64_t next = 0;
    for (GgufTensor* const tensor : order) {
      TRY_IN(quote(tensor->name), place(*tensor, next, *data));
    }
    return {};
  }

  Status place(GgufTensor& tensor, std::uint64_t& next, std::uint64_t data) const {
    if (tensor.offset != next) {
      return corrupt(fmt::format(
          "begins at data byte {}, but the tensor before it, padded to {} bytes, ends at {}",
          tensor.offset, alignment_, next));
    }
    if (!range_fits(tensor.offset, tensor.bytes, out_.file->size() - data)) {
      return corrupt(
          fmt::format("its {} bytes from data byte {} on reach past the end of the "
                      "file; copy or download the file again",
                      tensor.bytes, tensor.offset));
    }
    const auto end = padded(tensor.offset + tensor.bytes);
    if (!end) {
      return corrupt("its end is past 2^64");
    }
    next = *end;
    tensor.offset += data;
    return {};
  }

  GgufFile out_;
  GgufCursor from_;
  GgufArrays arrays_;
  std::uint64_t alignment_ = kUsualAlignment;
  std::uint64_t items_ = 0;  // of the arrays that are kept
  OwnedNameSet keys_;
  OwnedNameSet names_;
};

}  // namespace

Result<GgufFile> read_gguf_file(std::shared_ptr<const SourceFile> file, GgufArrays arrays) {
  const std::string where = file->name();
  TRY_ASSIGN_IN(where, auto read, HeaderReader(std::move(file), arrays).read());
  return read;
}

}  // namespace onnx_external
