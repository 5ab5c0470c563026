// Declarations of tensors that lie, against an oracle that counts in 128 bits: rows P6, P7, S1 and
// S2 of docs/security.md.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "mutants/meter.h"
#include "support/result_matchers.h"
#include "threats/threats.h"

namespace onnx_external {
namespace {

__extension__ typedef __int128 Wide;

constexpr Wide kMost = std::numeric_limits<std::int64_t>::max();

class Chance {
 public:
  explicit Chance(std::uint32_t seed) : engine_(seed) {}
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(engine_);
  }
  // Small numbers mostly, else one at which arithmetic breaks.
  std::int64_t number() {
    static const std::array<std::int64_t, 18> kEdges{-1,
                                                     std::numeric_limits<std::int64_t>::min(),
                                                     std::numeric_limits<std::int64_t>::max(),
                                                     std::numeric_limits<std::int64_t>::max() - 1,
                                                     1LL << 62,
                                                     1LL << 61,
                                                     1LL << 60,
                                                     1LL << 32,
                                                     (1LL << 32) - 1,
                                                     (1LL << 32) + 1,
                                                     1LL << 31,
                                                     (1LL << 31) - 1,
                                                     -(1LL << 31),
                                                     -2,
                                                     1LL << 63 >> 1,
                                                     1LL << 53,
                                                     6'148'914'691'236'517'205,
                                                     3'037'000'500};
    return below(3) == 0 ? kEdges[below(kEdges.size())] : static_cast<std::int64_t>(below(6));
  }

 private:
  std::mt19937 engine_;
};

// What a pickle says of a tensor, and what its record holds.
struct Declared {
  DType dtype = DType::kFloat32;
  std::int64_t numel = 0;
  std::int64_t offset = 0;
  Shape shape;
  std::vector<std::int64_t> strides;
  std::size_t record_bytes = 0;
};

// Whether torch's rules allow it, in numbers that cannot overflow.
bool is_valid(const Declared& d) {
  const Wide item = byte_size(d.dtype);
  if (d.numel < 0 || d.offset < 0 || d.numel * item != Wide(d.record_bytes) ||
      d.shape.size() != d.strides.size()) {
    return false;
  }
  bool empty = false;
  for (const std::int64_t dim : d.shape) {
    if (dim < 0) {
      return false;
    }
    empty = empty || dim == 0;
  }
  if (empty) {
    return true;
  }
  Wide count = 1;
  Wide last = d.offset;
  for (std::size_t i = 0; i < d.shape.size(); ++i) {
    if (d.strides[i] < 0 || count > kMost / d.shape[i]) {
      return false;
    }
    count *= d.shape[i];
    last += Wide(d.shape[i] - 1) * d.strides[i];
    if (last > kMost) {
      return false;
    }
  }
  return last < d.numel && count * item <= Wide(kAlwaysExpandedBytes);
}

Declared random_declaration(Chance& chance) {
  constexpr std::array kTypes{DType::kFloat64, DType::kFloat32, DType::kFloat16,   DType::kInt8,
                              DType::kInt64,   DType::kBool,    DType::kComplex128};
  Declared d;
  d.dtype = kTypes[chance.below(kTypes.size())];
  d.record_bytes = chance.below(7) * byte_size(d.dtype) + (chance.below(8) == 0 ? 1 : 0);
  d.numel = chance.below(4) == 0 ? chance.number()
                                 : static_cast<std::int64_t>(d.record_bytes / byte_size(d.dtype));
  d.offset = chance.below(2) == 0 ? 0 : chance.number();
  const std::size_t rank = chance.below(4);
  for (std::size_t i = 0; i < rank; ++i) {
    d.shape.push_back(chance.number());
    d.strides.push_back(chance.number());
  }
  if (chance.below(3) == 0) {
    std::fill(d.strides.begin(), d.strides.end(), chance.below(2));
  }
  if (chance.below(20) == 0) {
    d.strides.push_back(1);
  }
  return d;
}

std::string file_of(const Declared& d) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage").global("torch", storage_class(d.dtype)).string("0");
  pickle.string("cpu").integer(d.numel).tuple().persistent_id().integer(d.offset);
  pickle.integers(d.shape).integers(d.strides).boolean(false).ordered_dict().tuple().reduce();
  pickle.set_items().stop();
  return zip_of(pickle, {std::string(d.record_bytes, 'x')});
}

TEST(TensorThreat, ADeclarationIsAcceptedExactlyWhenItsBytesAreThere) {
  Chance chance(1);
  std::size_t accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Declared d = random_declaration(chance);
    const auto checkpoint = open_in_memory(file_of(d));
    ASSERT_EQ(checkpoint.has_value(), is_valid(d))
        << i << ": numel " << d.numel << " offset " << d.offset << " shape " << shape_text(d.shape)
        << " strides " << shape_text(d.strides) << " of " << d.record_bytes
        << " bytes: " << (checkpoint ? "accepted" : checkpoint.error().message);
    if (checkpoint) {
      ++accepted;
      const std::string bytes = read_all(*checkpoint, 0);
      ASSERT_EQ(bytes, std::string(bytes.size(), 'x')) << i;
    }
  }
  EXPECT_GT(accepted, 500U);
  EXPECT_LT(accepted, 9'500U);
}

TEST(TensorThreat, AFewBytesExpandAsFarAsTheOptionSays) {
  std::size_t cases = 0;
  for (const std::uint64_t most : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{1'000'000}}) {
    for (int power = 0; power < 62; ++power) {
      const std::int64_t elements = std::int64_t{1} << power;
      const Shape shape = power % 2 == 0 ? Shape{elements} : Shape{2, elements / 2};
      const std::string file = torch_zip(
          {{.name = "w", .shape = {1}, .bytes = f32({1})},
           {.name = "e", .shape = shape, .strides = {Shape(shape.size(), 0)}, .shares = "w"}});
      const Wide bytes = Wide(elements) * 4 + (elements == 1 && shape.size() == 1 ? 0 : 4);
      const Wide allowed = Wide(std::max<std::uint64_t>(most, 1)) * file.size();
      const bool fits = bytes <= Wide(kAlwaysExpandedBytes) ||
                        bytes < allowed + Wide(std::max<std::uint64_t>(most, 1));
      reset_peak();
      const auto checkpoint = open_in_memory(file, {.max_expand = most});
      EXPECT_LT(peak_bytes(), kModestMemory);
      EXPECT_EQ(checkpoint.has_value(), fits) << "2^" << power << " elements, " << most;
      ++cases;
    }
  }
  EXPECT_GE(cases, 100U);
}

TEST(TensorThreat, ManyTensorsOfOneStorageTakeMemoryForTheirNamesOnly) {
  constexpr int kMany = 5'000;
  std::vector<TestTensor> tensors{{.name = "w", .shape = {4}, .bytes = f32({1, 2, 3, 4})}};
  for (int i = 0; i < kMany; ++i) {
    tensors.push_back({.name = std::to_string(i), .shape = {4}, .shares = "w"});
  }
  const std::string file = torch_zip(tensors);
  reset_peak();
  const auto checkpoint = open_in_memory(file);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_LT(peak_bytes(), 20 * file.size());
  EXPECT_EQ(checkpoint->storages().size(), 1U);
}

// --- safetensors -------------------------------------------------------------------------------

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  std::string file;
  put_le(file, header.size(), 8);
  return file + header + std::string(data_bytes, 'x');
}

// The format's rules, applied by another parser: a reference to compare with. U64 and larger
// numbers in shapes are refused here, as they are nowhere valid.
bool reference_accepts(const std::string& header, std::size_t data_bytes) {
  static const std::map<std::string, std::uint64_t> kSizes{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"I16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"F32", 4}, {"I64", 8}, {"F64", 8}};
  std::set<std::string> keys;
  bool twins = false;
  const auto notice = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      twins = !keys.insert(key.get<std::string>()).second || twins;
    }
    return true;
  };
  const auto json = nlohmann::json::parse(header, notice, false);
  if (json.is_discarded() || !json.is_object() || twins) {
    return false;
  }
  std::map<std::uint64_t, std::uint64_t> spans;
  std::size_t full = 0;
  for (const auto& [name, tensor] : json.items()) {
    if (!tensor.is_object() || tensor.size() != 3 || !tensor.contains("dtype") ||
        !tensor["dtype"].is_string() || !kSizes.contains(tensor["dtype"].get<std::string>()) ||
        !tensor.contains("shape") || !tensor["shape"].is_array() ||
        !tensor.contains("data_offsets") || !tensor["data_offsets"].is_array() ||
        tensor["data_offsets"].size() != 2) {
      return false;
    }
    Wide bytes = Wide(kSizes.at(tensor["dtype"].get<std::string>()));
    bool empty = false;
    for (const auto& dim : tensor["shape"]) {
      if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > std::uint64_t(kMost)) {
        return false;
      }
      empty = empty || dim == 0;
    }
    for (const auto& dim : tensor["shape"]) {
      bytes = empty ? 0 : bytes * Wide(dim.get<std::uint64_t>());
      if (bytes > kMost) {
        return false;
      }
    }
    const auto& offsets = tensor["data_offsets"];
    if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      return false;
    }
    const Wide begin = offsets[0].get<std::uint64_t>();
    const Wide end = offsets[1].get<std::uint64_t>();
    if (end - begin != bytes) {
      return false;
    }
    if (bytes > 0) {
      spans[static_cast<std::uint64_t>(begin)] = static_cast<std::uint64_t>(end);
      ++full;
    } else if (begin > Wide(data_bytes)) {
      return false;
    }
  }
  std::uint64_t at = 0;
  for (const auto& [begin, end] : spans) {
    if (begin != at) {
      return false;
    }
    at = end;
  }
  return at == data_bytes && spans.size() == full;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& begin,
                  const std::string& end) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" + begin + "," +
         end + "]}";
}

// Headers of one to three tensors, in most of which something small is wrong.
std::string random_header(Chance& chance, std::size_t& data_bytes) {
  static const std::vector<std::string> kNumbers{"0",
                                                 "1",
                                                 "2",
                                                 "3",
                                                 "-1",
                                                 "-0",
                                                 "1.0",
                                                 "1e0",
                                                 "1e400",
                                                 "18446744073709551615",
                                                 "18446744073709551616",
                                                 "18446744073709551617",
                                                 "9223372036854775807",
                                                 "9223372036854775808",
                                                 "4294967296",
                                                 "4611686018427387904",
                                                 "null",
                                                 "\"1\"",
                                                 "[1]",
                                                 "01"};
  static const std::vector<std::string> kTypes{"F32", "U8",  "I16", "F64", "BF16",
                                               "f32", "X99", "",    "F32 "};
  const auto number = [&](std::uint64_t honest) {
    return chance.below(12) == 0 ? kNumbers[chance.below(kNumbers.size())] : std::to_string(honest);
  };
  std::string header = "{";
  data_bytes = 0;
  const std::size_t tensors = 1 + chance.below(3);
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::size_t type = chance.below(12) == 0 ? chance.below(kTypes.size()) : chance.below(5);
    constexpr std::array<std::uint64_t, 5> kSizes{4, 1, 2, 8, 2};
    const std::uint64_t rows = chance.below(4);
    const std::uint64_t bytes = rows * 2 * kSizes[std::min<std::size_t>(type, 4)];
    const std::string name = chance.below(20) == 0 ? "t0" : "t" + std::to_string(i);
    header += (i == 0 ? "\"" : ",\"") + name + "\":" +
              entry(kTypes[type], "[" + number(rows) + "," + number(2) + "]", number(data_bytes),
                    number(data_bytes + bytes));
    data_bytes += bytes;
  }
  data_bytes += chance.below(15) == 0 ? 1 : 0;
  header += "}";
  if (chance.below(8) == 0) {  // damage in the text itself
    const std::size_t at = chance.below(header.size());
    switch (chance.below(3)) {
      case 0:
        header[at] = static_cast<char>(chance.below(256));
        break;
      case 1:
        header.erase(at, 1);
        break;
      default:
        header.resize(at);
    }
  }
  return header;
}

TEST(SafetensorsThreat, AcceptsWhatAnotherReaderAcceptsAndNothingElse) {
  Chance chance(2);
  std::size_t accepted = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::size_t data_bytes = 0;
    const std::string header = random_header(chance, data_bytes);
    reset_peak();
    const auto checkpoint = open_in_memory(safetensors(header, data_bytes));
    EXPECT_LT(peak_bytes(), kModestMemory);
    ASSERT_EQ(checkpoint.has_value(), reference_accepts(header, data_bytes))
        << i << ": " << header << ": " << (checkpoint ? "accepted" : checkpoint.error().message);
    accepted += checkpoint ? 1 : 0;
  }
  EXPECT_GT(accepted, 500U);
  EXPECT_LT(accepted, 4'500U);
}

// One file for each fault that was published of another reader.
TEST(SafetensorsThreat, TheFaultsOfOtherReadersAreRefused) {
  struct Fault {
    const char* reader;
    std::string file;
  };
  const auto with_length = [](std::uint64_t length, const std::string& rest) {
    std::string file;
    put_le(file, length, 8);
    return file + rest;
  };
  const auto one = [](const std::string& tensor, std::size_t bytes) {
    return safetensors("{\"w\":" + tensor + "}", bytes);
  };
  const std::string wraps = "4294967296,4294967296";
  const std::vector<Fault> faults{
      {"fastllm 712: the header's length wraps", with_length(~std::uint64_t{0} - 7, "{}")},
      {"fastllm 712: the shape is smaller than the span", one(entry("F32", "[1]", "0", "64"), 64)},
      {"fastllm 712: the span is smaller than the shape", one(entry("F32", "[64]", "0", "4"), 4)},
      {"LiteRT 9255: a product that wraps to zero is no empty tensor",
       one(entry("U8", "[" + wraps + "]", "0", "0"), 0)},
      {"LiteRT 9255: zero times an overflow", one(entry("U8", "[" + wraps + ",3]", "0", "0"), 0)},
      {"stable-diffusion.cpp 1876: the same with elements of 4 bytes",
       one(entry("F32", "[4611686018427387904,4]", "0", "0"), 0)},
      {"imp 1603: an unknown type", one(entry("Q4", "[2]", "0", "2"), 2)},
      {"imp 1603: an unknown type past the file", one(entry("Q4", "[2]", "0", "9999"), 2)},
      {"audio.cpp 138: the end before the begin", one(entry("U8", "[2]", "4", "2"), 4)},
      {"llama.cpp: a sum that wraps", one(entry("U8", "[2]", "18446744073709551615", "1"), 2)},
      {"OpenVINO 34070: offset and length that wrap",
       one(entry("U8", "[16]", "18446744073709551608", "8"), 8)},
      {"polyglot: bytes after the last tensor", one(entry("U8", "[2]", "0", "2"), 9)},
      {"polyglot: a hole", one(entry("U8", "[2]", "7", "9"), 9)},
      {"a header of 100 MB and one byte", with_length(100'000'001, "{}")},
      {"leading bytes", safetensors("  x{}", 0)},
      {"not UTF-8", safetensors("{\"\xff\":" + entry("U8", "[0]", "0", "0") + "}", 0)},
      {"nesting", safetensors("{\"w\":" + std::string(100'000, '['), 0)},
      {"twin keys", safetensors("{\"w\":" + entry("U8", "[1]", "0", "1") +
                                    ",\"w\":" + entry("U8", "[1]", "0", "1") + "}",
                                1)},
  };
  for (const Fault& fault : faults) {
    reset_peak();
    EXPECT_FALSE(open_in_memory(fault.file).has_value()) << fault.reader;
    EXPECT_LT(peak_bytes(), kModestMemory) << fault.reader;
  }
}

}  // namespace
}  // namespace onnx_external
