#include "fuzz/zip_mutator.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/pickle_mutator.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

struct Field {
  std::size_t at;
  int bytes;
};
// The fields behind each signature. Source: APPNOTE.TXT 6.3.x, 4.3.7 to 4.3.16.
struct Header {
  std::string_view magic;
  std::vector<Field> fields;
};

const std::vector<Header>& headers() {
  static const std::vector<Header> all = {
      {{"PK\x03\x04", 4}, {{4, 2}, {6, 2}, {8, 2}, {14, 4}, {18, 4}, {22, 4}, {26, 2}, {28, 2}}},
      {{"PK\x07\x08", 4}, {{4, 4}, {8, 4}, {12, 4}}},
      {{"PK\x01\x02", 4},
       {{6, 2},
        {8, 2},
        {10, 2},
        {16, 4},
        {20, 4},
        {24, 4},
        {28, 2},
        {30, 2},
        {32, 2},
        {34, 2},
        {42, 4}}},
      {{"PK\x06\x06", 4}, {{4, 8}, {16, 4}, {20, 4}, {24, 8}, {32, 8}, {40, 8}, {48, 8}}},
      {{"PK\x06\x07", 4}, {{4, 4}, {8, 8}, {16, 4}}},
      {{"PK\x05\x06", 4}, {{4, 2}, {6, 2}, {8, 2}, {10, 2}, {12, 4}, {16, 4}, {20, 2}}}};
  return all;
}

std::uint64_t read_le(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  if (at + static_cast<std::size_t>(count) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + at, static_cast<std::size_t>(count));
  }
  return value;
}

// Every field of every header.
std::vector<Field> fields_of(std::string_view bytes) {
  std::vector<Field> fields;
  for (std::size_t at = bytes.find("PK"); at < bytes.size(); at = bytes.find("PK", at + 2)) {
    for (const Header& header : headers()) {
      if (!bytes.substr(at).starts_with(header.magic)) {
        continue;
      }
      for (const Field& field : header.fields) {
        if (at + field.at + static_cast<std::size_t>(field.bytes) <= bytes.size()) {
          fields.push_back({at + field.at, field.bytes});
        }
      }
    }
  }
  return fields;
}

// A field gets a number, that of another field, or one near its own.
void change_field(std::string& bytes, Chance& chance) {
  const std::vector<Field> fields = fields_of(bytes);
  if (fields.empty()) {
    return;
  }
  const Field& field = chance.pick(fields);
  const Field& other = chance.pick(fields);
  std::uint64_t value = read_le(bytes, field.at, field.bytes);
  switch (chance.below(4)) {
    case 0:
      value = read_le(bytes, other.at, other.bytes);
      break;
    case 1:
      value += chance.below(5) - 2;
      break;
    case 2:
      value ^= std::uint64_t{1} << chance.below(16);
      break;
    default:
      value = chance.one_in(3) ? bytes.size() - chance.below(3) : chance.number();
  }
  poke_le(bytes, field.at, value, field.bytes);
}

struct Record {
  std::string name;
  std::string data;  // uncompressed, if that can be done
  bool deflated = false;
};

std::string inflated(std::string_view bytes, std::uint64_t size) {
  constexpr std::uint64_t kMost = std::uint64_t{64} << 10;
  std::string out(static_cast<std::size_t>(std::min(size, kMost)), '\0');
  z_stream stream{};
  ::inflateInit2(&stream, -MAX_WBITS);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::inflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::inflateEnd(&stream);
  return out;
}

// The records that the central headers name.
std::vector<Record> records_of(std::string_view bytes) {
  constexpr std::size_t kMostRecords = 64;
  constexpr std::string_view kCentral{"PK\x01\x02", 4};
  std::vector<Record> records;
  for (std::size_t at = bytes.find(kCentral); at < bytes.size() && records.size() < kMostRecords;
       at = bytes.find(kCentral, at + 4)) {
    const std::size_t local = read_le(bytes, at + 42, 4);
    const std::size_t name = read_le(bytes, at + 28, 2);
    const std::size_t begin =
        local + 30 + read_le(bytes, local + 26, 2) + read_le(bytes, local + 28, 2);
    if (begin > bytes.size() || at + 46 > bytes.size()) {
      continue;
    }
    const std::string_view stored = bytes.substr(begin, read_le(bytes, at + 20, 4));
    const bool deflated = read_le(bytes, at + 10, 2) == 8;
    records.push_back(
        {std::string(bytes.substr(at + 46, name)),
         deflated ? inflated(stored, read_le(bytes, at + 24, 4)) : std::string(stored), deflated});
  }
  return records;
}

void change_record(std::vector<Record>& records, Chance& chance) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"data.pkl", "constants.pkl", "byteorder", "version", ".data/version", "data/0", "data/1",
       "constants/0", "model.json", "archive_format", "data/weights/model_weights_config.json",
       "data/constants/model_constants_config.json", "data/weights/weight_0", "code/__torch__.py",
       "bytecode.pkl", "serialized_state_dict.pt", "serialized_state_dict.json",
       ".data/extern_modules"});
  Record& record = chance.pick(records);
  const bool is_pickle = record.name.ends_with(".pkl");
  switch (chance.below(8)) {
    case 0:
      record.deflated = !record.deflated;
      break;
    case 1:
      record.name = mutated(record.name, 4);
      break;
    case 2:
      record.name = record.name.substr(0, record.name.find('/') + 1);
      record.name += chance.pick(kNames);
      break;
    case 3:
      std::swap(record.data, chance.pick(records).data);
      break;
    case 4:
      records.push_back(Record(record));
      break;
    case 5:
      records.erase(records.begin() + (&record - records.data()));
      break;
    default:
      record.data = is_pickle && !chance.one_in(4) ? mutate_pickle(record.data, chance)
                                                   : mutated(record.data, 16);
  }
}

// Sizes, CRCs and offsets are right again.
std::string wrap(const std::vector<Record>& records, Chance& chance) {
  ZipBuilder zip;
  const bool plain = chance.one_in(4);
  const bool without_crc = chance.one_in(4);
  for (const Record& record : records) {
    ZipRecord out{.name = record.name, .data = record.data, .deflated = record.deflated};
    out.alignment = plain ? 0 : 64;
    out.descriptor = !plain;
    if (without_crc) {
      out.central_lie = [](ZipFields& fields) { fields.crc = 0; };
    }
    zip.add(out);
  }
  return zip.finish([&](ZipEnd& end) { end.zip64 = !plain; });
}

}  // namespace

std::string mutate_zip(std::string_view input, Chance& chance) {
  std::string bytes(input);
  if (chance.one_in(3)) {
    for (std::size_t left = 1 + chance.below(3); left > 0; --left) {
      change_field(bytes, chance);
    }
    return bytes;
  }
  std::vector<Record> records = records_of(bytes);
  for (std::size_t left = 1 + chance.below(3); left > 0 && !records.empty(); --left) {
    change_record(records, chance);
  }
  if (records.empty()) {
    return "";
  }
  bytes = wrap(records, chance);
  if (chance.one_in(6)) {
    change_field(bytes, chance);
  }
  return bytes;
}

std::size_t mutate_zip_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                             unsigned seed) {
  return mutate_input(data, size, max_size, seed, 5, mutate_zip);
}

}  // namespace onnx_external
