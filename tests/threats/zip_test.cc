// Zip archives that lie: rows Z1 to Z6 of docs/security.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "checkpoint/container/zip_archive.h"
#include "mutants/meter.h"
#include "support/save_fixture.h"
#include "threats/threats.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMostRead = 1 << 20;

Result<ZipArchive> open_zip(const std::string& bytes) {
  const MemoryFile memory(bytes);
  const auto file = SourceFile::open(memory.path());
  return file ? ZipArchive::open(*file) : fail(file.error());
}

// A stored record with a descriptor, one without, and a deflated one.
const std::map<std::string, std::string>& contents() {
  static const std::map<std::string, std::string> all{
      {"stored", noise(150, 1)},
      {"plain", noise(90, 2)},
      {"deflated", std::string(300, 'x') + noise(40, 3)}};
  return all;
}

ZipBuilder three_records() {
  ZipBuilder zip;
  zip.add({.name = "a/stored", .data = contents().at("stored")});
  zip.add({.name = "a/plain", .data = contents().at("plain"), .descriptor = false});
  zip.add({.name = "a/deflated", .data = contents().at("deflated"), .deflated = true});
  return zip;
}

// Whatever an archive that opens gives is what was put into it.
testing::AssertionResult is_refused_or_honest(const std::string& bytes) {
  const auto archive = open_zip(bytes);
  if (!archive) {
    return testing::AssertionSuccess();
  }
  for (const ZipEntry& entry : archive->entries()) {
    const auto known = contents().find(std::string(archive->name_in_root(entry)));
    if (known == contents().end()) {
      return testing::AssertionFailure() << "lists " << entry.name;
    }
    const auto read = archive->read_record(entry, kMostRead);
    if (read && *read != known->second) {
      return testing::AssertionFailure() << "gives other bytes for " << entry.name;
    }
  }
  return testing::AssertionSuccess();
}

struct Number {
  std::size_t at;
  int size;
};

// Every number of every header of a finished archive, found by the headers' marks.
std::vector<Number> numbers_of(const std::string& bytes) {
  const std::map<std::string, std::vector<int>> layouts{
      {"PK\x03\x04", {4, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2}},
      {"PK\x07\x08", {4, 4, 4, 4}},
      {"PK\x01\x02", {4, 2, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2, 2, 2, 2, 4, 4}},
      {"PK\x06\x06", {4, 8, 2, 2, 4, 4, 8, 8, 8, 8}},
      {"PK\x06\x07", {4, 4, 8, 4}},
      {"PK\x05\x06", {4, 2, 2, 2, 2, 4, 4, 2}}};
  std::vector<Number> numbers;
  for (const auto& [mark, sizes] : layouts) {
    for (auto at = bytes.find(mark); at != std::string::npos; at = bytes.find(mark, at + 1)) {
      std::size_t place = at;
      for (const int size : sizes) {
        numbers.push_back({place, size});
        place += static_cast<std::size_t>(size);
      }
    }
  }
  return numbers;
}

TEST(ZipThreat, NoNumberOfAnyHeaderMakesAnArchiveLie) {
  const std::string honest = three_records().finish();
  ASSERT_THAT(open_zip(honest), IsOk());
  const auto numbers = numbers_of(honest);
  ASSERT_GE(numbers.size(), 3U * (11 + 17) + 2U * 4 + 10 + 4 + 8);
  std::size_t cases = 0;
  for (const Number& number : numbers) {
    std::uint64_t before = 0;
    std::memcpy(&before, honest.data() + number.at, static_cast<std::size_t>(number.size));
    for (const std::uint64_t value : boundary_values(before, honest.size())) {
      std::string bytes = honest;
      poke_le(bytes, number.at, value, number.size);
      reset_peak();
      EXPECT_TRUE(is_refused_or_honest(bytes)) << "byte " << number.at << ": " << value;
      EXPECT_LT(peak_bytes(), kModestMemory) << "byte " << number.at << ": " << value;
      ++cases;
    }
  }
  EXPECT_GE(cases, 2600U);
}

TEST(ZipThreat, TwoArchivesInOneFileAreRefused) {
  const std::string one = three_records().finish();
  const std::string other = with_pickle_of(f32({1}));
  for (const std::string& both : {one + one, one + other, other + one}) {
    EXPECT_FALSE(open_zip(both).has_value());
  }
  const auto swallowed = three_records().finish([&](ZipEnd& end) { end.comment = one; });
  EXPECT_FALSE(open_zip(swallowed).has_value());
}

struct Overlap {
  const char* name;
  std::function<std::string()> make;
};

// An archive of "a/x" and "a/y" whose directory entry for y was changed.
std::string with_second(std::function<void(ZipFields&)> lie, bool deflated = false) {
  ZipBuilder zip;
  zip.add({.name = "a/x", .data = noise(200, 1)});
  zip.add(
      {.name = "a/y", .data = noise(200, 2), .deflated = deflated, .central_lie = std::move(lie)});
  return zip.finish();
}

// x's data holds a whole local header and data of y, to which the directory points.
std::string record_inside_another() {
  ZipBuilder inner;
  inner.add({.name = "a/y", .data = "inner", .descriptor = false, .alignment = 0});
  const std::string bytes = inner.finish();
  const std::string header = bytes.substr(0, inner.size_so_far());
  ZipBuilder outer;
  outer.add({.name = "a/x", .data = "before" + header + "after", .alignment = 0});
  const std::uint64_t place = outer.data_offset(0) + 6;
  outer.add({.name = "a/y",
             .data = "inner",
             .descriptor = false,
             .alignment = 0,
             .central_lie = [place](ZipFields& fields) { fields.offset = place; }});
  return outer.finish();
}

// Fifield's bomb: each record begins with a stored deflate block that quotes the next one's header,
// so that all of them end in one kernel of data.
std::string quoted_overlap() {
  std::string kernel = raw_deflate(std::string(100'000, '\0'));
  ZipBuilder second;
  second.add({.name = "a/1", .data = "", .alignment = 0});
  const std::string header = second.finish().substr(0, second.size_so_far());
  std::string quote(1, '\0');  // a stored block, not the last one
  put_le(quote, header.size(), 2);
  put_le(quote, ~header.size(), 2);
  const auto lie = [&](std::uint64_t offset, std::uint64_t stored, std::uint64_t size) {
    return [=](ZipFields& fields) {
      fields.method = 8;
      fields.offset = offset;
      fields.stored = stored;
      fields.size = size;
      fields.crc = 0;
    };
  };
  ZipBuilder zip;
  const auto method = [](ZipFields& fields) { fields.method = 8; };
  zip.add({.name = "a/0",
           .data = quote,
           .descriptor = false,
           .alignment = 0,
           .local_lie = method,
           .central_lie =
               lie(0, quote.size() + header.size() + kernel.size(), header.size() + 100'000)});
  const std::uint64_t place = zip.size_so_far();
  zip.add({.name = "a/1",
           .data = kernel,
           .alignment = 0,
           .local_lie = method,
           .central_lie = lie(place, kernel.size(), 100'000)});
  return zip.finish();
}

std::string with_bytes_between(std::size_t size) {
  ZipBuilder zip;
  zip.add({.name = "a/x", .data = "x", .descriptor = false});
  zip.add_raw(std::string(size, '!'));
  zip.add({.name = "a/y", .data = "y", .descriptor = false});
  zip.add_raw(std::string(size, '!'));
  return zip.finish();
}

TEST(ZipThreat, RecordsThatShareOrHideBytesAreRefused) {
  ASSERT_THAT(open_zip(with_second({})), IsOk());
  ASSERT_THAT(open_zip(with_bytes_between(24)), IsOk());
  const std::vector<Overlap> overlaps{
      {"one header for both", [] { return with_second([](auto& f) { f.offset = 0; }); }},
      {"one byte into the first's data", [] { return with_second([](auto& f) { --f.offset; }); }},
      {"a header in the first's data", record_inside_another},
      {"quoted overlap", quoted_overlap},
      {"data up to the directory's end",
       [] { return with_second([](auto& f) { f.stored = f.size = f.size + 100; }); }},
      {"data past the file",
       [] { return with_second([](auto& f) { f.stored = f.size = 1 << 30; }); }},
      {"deflated data into the directory",
       [] { return with_second([](auto& f) { f.stored += 60; }, true); }},
      {"a header in the directory", [] { return with_second([](auto& f) { f.offset += 700; }); }},
      {"a header at the file's end", [] { return with_second([](auto& f) { f.offset = 1'000; }); }},
      {"bytes before the first", [] { return "#!/bin/sh\n" + with_second({}); }},
      {"bytes between two", [] { return with_bytes_between(25); }},
  };
  for (const Overlap& overlap : overlaps) {
    EXPECT_FALSE(open_zip(overlap.make()).has_value()) << overlap.name;
  }
}

TEST(ZipThreat, RecordsAreAcceptedOnlyWhereTheyWereWritten) {
  std::mt19937 chance(1);
  const auto below = [&](std::uint64_t end) {
    return std::uniform_int_distribution<std::uint64_t>(0, end - 1)(chance);
  };
  const std::string honest = three_records().finish();
  std::vector<std::size_t> entries;
  for (auto at = honest.find("PK\x01\x02"); at != std::string::npos;
       at = honest.find("PK\x01\x02", at + 1)) {
    entries.push_back(at);
  }
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = honest;
    for (const std::size_t entry : entries) {
      const std::uint64_t size = below(honest.size());
      poke_le(bytes, entry + 20, size, 4);
      poke_le(bytes, entry + 24, below(4) == 0 ? below(honest.size()) : size, 4);
      poke_le(bytes, entry + 42, below(2) == 0 ? below(honest.size()) : 0, 4);
    }
    EXPECT_TRUE(is_refused_or_honest(bytes)) << i;
  }
}

TEST(ZipThreat, NamesThatTwoReadersCouldTakeForOneAreRefused) {
  const std::vector<std::pair<std::string, std::string>> twins{
      {"a/data.pkl", "a/data.pkl"}, {"a/data.pkl", "a/DATA.PKL"},
      {"a/data.pkl", "b/data.pkl"}, {"archive/data.pkl", "x/data.pkl"},
      {"a/data.pkl", "A/data.pkl"}, {"a/data.pkl", "a/Data.pkl"},
      {"a/data/0", "a/Data/0"},     {"a/data.pkl", "/data.pkl"},
      {"a/data.pkl", "./data.pkl"}, {"a/data.pkl", "../data.pkl"}};
  for (const auto& [first, second] : twins) {
    for (const bool swapped : {false, true}) {
      ZipBuilder zip;
      zip.add({.name = swapped ? second : first, .data = "N."});
      zip.add({.name = swapped ? first : second, .data = "N."});
      EXPECT_FALSE(open_zip(zip.finish()).has_value()) << first << " " << second << swapped;
    }
  }
}

TEST(ZipThreat, LettersThatLookAlikeAreDifferentNames) {
  ZipBuilder zip;  // e acute: one code point, and two
  zip.add({.name = "a/\xc3\xa9", .data = "one"});
  zip.add({.name = "a/e\xcc\x81", .data = "two"});
  const auto archive = open_zip(zip.finish());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->read_record(*archive->find("\xc3\xa9"), 9).value(), "one");
  EXPECT_EQ(archive->read_record(*archive->find("e\xcc\x81"), 9).value(), "two");
}

TEST(ZipThreat, ABombTakesNoMemory) {
  const auto bomb = [](std::uint64_t declared, std::size_t zeros) {
    ZipBuilder zip;
    zip.add({.name = "a/data.pkl",
             .data = std::string(zeros, '\0'),
             .deflated = true,
             .central_lie = [declared](ZipFields& fields) { fields.size = declared; }});
    return zip.finish();
  };
  constexpr std::size_t kZeros = 4'000'000;
  const std::vector<std::uint64_t> declared{0, 1, 100, kZeros - 1, kZeros + 1, 0xfffffffe};
  for (const std::uint64_t size : declared) {
    const std::string bytes = bomb(size, kZeros);
    reset_peak();
    EXPECT_FALSE(open_in_memory(bytes).has_value()) << size;
    EXPECT_LT(peak_bytes(), 3 * kZeros + kModestMemory) << size;
  }
  const std::string small = bomb(0xfffffffe, 40'000);  // 42 KB become 4 GB
  reset_peak();
  EXPECT_FALSE(open_in_memory(small).has_value());
  EXPECT_LT(peak_bytes(), kModestMemory);
}

TEST(ZipThreat, EveryFlagIsHarmlessOrRefused) {
  for (int bit = 0; bit < 16; ++bit) {
    const bool refused = bit == 0 || bit == 5 || bit == 6 || bit == 13;
    for (const bool local : {true, false}) {
      const auto set = [bit](ZipFields& fields) {
        fields.flags = static_cast<std::uint16_t>(fields.flags | (1 << bit));
      };
      ZipRecord record{.name = "a/stored", .data = contents().at("stored")};
      (local ? record.local_lie : record.central_lie) = set;
      ZipBuilder zip;
      zip.add(record);
      EXPECT_TRUE(is_refused_or_honest(zip.finish())) << bit;
      EXPECT_EQ(open_zip(zip.finish()).has_value(), !refused) << bit;
    }
  }
}

TEST(ZipThreat, EveryFlippedByteOfARecordIsFound) {
  const ZipBuilder zip = three_records();
  const std::string honest = zip.finish();
  const std::vector<std::size_t> sizes{150, 90, raw_deflate(contents().at("deflated")).size()};
  for (std::size_t record = 0; record < sizes.size(); ++record) {
    for (std::size_t i = 0; i < sizes[record]; ++i) {
      std::string bytes = honest;
      bytes[zip.data_offset(record) + i] ^= 0x10;
      const auto archive = open_zip(bytes);
      ASSERT_THAT(archive, IsOk());
      EXPECT_FALSE(archive->read_record(archive->entries()[record], kMostRead).has_value())
          << record << " " << i;
    }
  }
}

TEST(ZipThreat, NamesOfRecordsAreNeverOpened) {
  const WatchedFolder victim;
  const std::string file = victim.file().string();
  std::vector<std::string> evil{file,
                                "/" + file,
                                "a/../../../../../../.." + file,
                                "a/" + file,
                                "a/./.." + file,
                                "a/data/../" + file,
                                "a/" + std::string(60'000, '/') + file,
                                "a/" + std::string(65'000, 'n'),
                                std::string("a/") + file + '\0' + "x",
                                "a\\..\\..\\" + file,
                                "a/\n\x1b[2J" + file,
                                "a/C:\\" + file};
  for (const std::string& name : evil) {
    ZipBuilder zip;
    zip.add({.name = "a/data.pkl",
             .data = state_dict_pickle({{.name = "w", .shape = {1}, .bytes = f32({1})}})});
    zip.add({.name = "a/data/0", .data = f32({1})});
    zip.add({.name = name, .data = "evil"});
    const auto checkpoint = open_in_memory(zip.finish());
    if (checkpoint) {
      EXPECT_EQ(read_all(*checkpoint, 0), f32({1}));
    }
    // And as the key of a storage.
    PickleBuilder pickle;
    pickle.proto().empty_dict().mark().string("w");
    put_tensor(pickle, {.shape = {1}}, name, 4);
    pickle.set_items().stop();
    EXPECT_FALSE(open_in_memory(zip_of(pickle, {f32({1})})).has_value());
  }
  EXPECT_FALSE(victim.was_touched());
}

}  // namespace
}  // namespace onnx_external
