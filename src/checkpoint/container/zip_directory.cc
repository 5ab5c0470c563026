#include "checkpoint/container/zip_directory.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/inflate.h"
#include "base/text.h"
#include "base/try.h"

// Field names and layout: APPNOTE.TXT 6.3.x, sections 4.3.7 (local header), 4.3.12 (central
// header), 4.3.14 to 4.3.16 (end records), 4.5.3 (zip64 extra).
namespace onnx_external {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50;
constexpr std::uint32_t kCentralMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50;
constexpr std::uint32_t kZip64EndMagic = 0x06064b50;
constexpr std::uint32_t kZip64LocatorMagic = 0x07064b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kZip64EndBytes = 56;
constexpr std::size_t kZip64LocatorBytes = 20;
constexpr std::size_t kMaxCommentBytes = 65535;
constexpr std::uint64_t kMaxDescriptorBytes = 24;  // all that may stand between two records

constexpr std::uint16_t kFlagEncrypted = 0x1;
constexpr std::uint16_t kFlagDescriptor = 0x8;
constexpr std::uint16_t kFlagPatch = 0x20;
constexpr std::uint16_t kFlagStrongEncryption = 0x40;
constexpr std::uint16_t kFlagMaskedHeaders = 0x2000;
constexpr std::uint16_t kRefusedFlags =
    kFlagEncrypted | kFlagPatch | kFlagStrongEncryption | kFlagMaskedHeaders;
constexpr std::uint16_t kMethodStored = 0;
constexpr std::uint16_t kMethodDeflate = 8;
constexpr std::uint16_t kZip64Tag = 1;
constexpr std::uint32_t kIn64 = 0xffffffff;  // "look into the zip64 extra"
constexpr std::uint16_t kEntriesIn64 = 0xffff;

// Reads fixed-size integers from bytes whose presence was checked before.
template <typename T>
T field(std::string_view bytes, std::size_t position) {
  T value{};
  std::memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

std::span<std::byte> writable(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

tl::unexpected<Error> corrupt(const SourceFile& file, std::uint64_t offset,
                              const std::string& what) {
  return fail(ErrorCode::kCorrupt, file.name() + ": byte " + std::to_string(offset) + ": " + what);
}

// Returns the position of the end record in `tail`: the only one whose comment ends with the file,
// or else the last one, which torch uses, whatever follows it.
Result<std::size_t> find_end_record(const SourceFile& file, std::string_view tail) {
  std::optional<std::size_t> found;
  std::optional<std::size_t> last;
  const std::uint64_t base = file.size() - tail.size();
  for (std::size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    if (field<std::uint32_t>(tail, at) != kEndMagic) {
      continue;
    }
    last = last ? last : at;
    if (at + kEndBytes + field<std::uint16_t>(tail, at + 20) != tail.size()) {
      continue;
    }
    if (found) {
      return corrupt(file, base + at, "a second zip end record inside the first one's comment");
    }
    found = at;
  }
  if (!found && !last &&
      tail.substr(tail.size() - kEndBytes).find_first_not_of('\0') == std::string_view::npos) {
    return corrupt(file, file.size(),
                   "ends with zeros; the download or copy of the file was not completed: download "
                   "or copy it again");
  }
  if (!found && !last) {
    return corrupt(file, file.size(),
                   "no zip end record at the end; the file is truncated, or has additional bytes "
                   "after the record");
  }
  return found ? *found : *last;
}

struct Zip64End {
  ZipDirectoryRange range;
  std::uint64_t offset = 0;  // of the zip64 end record
};

Result<Zip64End> read_zip64_end(const SourceFile& file, std::string_view locator,
                                std::uint64_t locator_offset) {
  const auto end_offset = field<std::uint64_t>(locator, 8);
  if (field<std::uint32_t>(locator, 4) != 0 || field<std::uint32_t>(locator, 16) > 1) {
    return fail(ErrorCode::kUnsupported,
                file.name() + ": a zip file that is split into several parts");
  }
  if (!range_fits(end_offset, kZip64EndBytes, locator_offset)) {
    return corrupt(file, locator_offset, "zip64 end record lies outside the file");
  }
  std::string record(kZip64EndBytes, '\0');
  TRY(file.read(end_offset, writable(record)));
  const auto record_size = field<std::uint64_t>(record, 4);
  if (field<std::uint32_t>(record, 0) != kZip64EndMagic ||
      record_size != locator_offset - end_offset - 12) {
    return corrupt(file, end_offset, "damaged zip64 end record");
  }
  if (field<std::uint32_t>(record, 16) != 0 || field<std::uint32_t>(record, 20) != 0) {
    return fail(ErrorCode::kUnsupported,
                file.name() + ": a zip file that is split into several parts");
  }
  Zip64End end;
  end.offset = end_offset;
  end.range = {.offset = field<std::uint64_t>(record, 48),
               .size = field<std::uint64_t>(record, 40),
               .entries = field<std::uint64_t>(record, 32)};
  if (field<std::uint64_t>(record, 24) != end.range.entries) {
    return corrupt(file, end_offset, "two different numbers of records");
  }
  return end;
}

// The old end record may repeat the zip64 values or defer to them; it may not contradict them.
bool agrees(std::uint64_t old_value, std::uint64_t deferred, std::uint64_t value) {
  return old_value == deferred || old_value == value;
}

Result<ZipDirectoryRange> check_directory(const SourceFile& file, const ZipDirectoryRange& range,
                                          std::uint64_t limit) {
  if (!range_fits(range.offset, range.size, limit) || range.offset + range.size != limit) {
    return corrupt(file, range.offset,
                   "zip directory of " + std::to_string(range.size) +
                       " bytes does not end at the end records (byte " + std::to_string(limit) +
                       "); bytes were added or removed");
  }
  if (range.entries > range.size / kCentralBytes) {
    return corrupt(file, range.offset,
                   std::to_string(range.entries) + " records do not fit a zip directory of " +
                       std::to_string(range.size) + " bytes");
  }
  if (range.size > kMaxZipDirectoryBytes || range.entries > kMaxZipRecords) {
    return fail(ErrorCode::kUnsupported, file.name() + ": zip directory of " +
                                             std::to_string(range.size) + " bytes is too large");
  }
  return range;
}

// The 64-bit values of a zip64 extra, in their fixed order, for those fields that defer to it.
Status apply_zip64(const SourceFile& file, std::uint64_t at, std::string_view extra,
                   std::span<std::uint64_t*> deferring) {
  for (std::size_t position = 0; position + 4 <= extra.size();) {
    const auto tag = field<std::uint16_t>(extra, position);
    const std::size_t length = field<std::uint16_t>(extra, position + 2);
    position += 4;
    if (length > extra.size() - position) {
      return corrupt(file, at, "zip extra field runs past its header");
    }
    if (tag == kZip64Tag) {
      if (length < deferring.size() * 8) {
        return corrupt(file, at, "zip64 extra field is too short");
      }
      for (std::size_t i = 0; i < deferring.size(); ++i) {
        *deferring[i] = field<std::uint64_t>(extra, position + 8 * i);
      }
      return {};
    }
    position += length;
  }
  return corrupt(file, at, "zip64 extra field is missing");
}

// Values that read 0xFFFFFFFF are stored in the zip64 extra field, in the given order.
Status resolve_zip64(const SourceFile& file, std::uint64_t at, std::string_view extra,
                     std::initializer_list<std::uint64_t*> values) {
  std::array<std::uint64_t*, 3> deferring{};
  std::size_t count = 0;
  for (std::uint64_t* value : values) {
    if (*value == kIn64) {
      deferring[count++] = value;
    }
  }
  if (count == 0) {
    return {};
  }
  return apply_zip64(file, at, extra, std::span(deferring).first(count));
}

Status check_method(const SourceFile& file, std::string_view name, std::uint16_t flags,
                    std::uint16_t method) {
  const auto where = [&] { return file.name() + ": record " + quote(name); };
  if ((flags & kRefusedFlags) != 0) {
    return fail(ErrorCode::kUnsupported, where() +
                                             ": encrypted or patched zip records cannot be read; "
                                             "unpack the file with its password first: unzip");
  }
  if (method != kMethodStored && method != kMethodDeflate) {
    return fail(ErrorCode::kUnsupported,
                where() + ": zip compression method " + std::to_string(method) +
                    " is not supported; save the checkpoint again with torch.save");
  }
  return {};
}

Status check_entry(const SourceFile& file, const ZipEntry& entry) {
  const std::string_view name = entry.name;
  if (name.find('\0') != std::string_view::npos) {
    return corrupt(file, entry.header_offset, "record name " + quote(name) + " holds a NUL");
  }
  if (entry.compression == Compression::kNone && entry.stored != entry.size) {
    return corrupt(file, entry.header_offset,
                   "record " + quote(name) + " is not compressed, but has two sizes: " +
                       std::to_string(entry.stored) + " and " + std::to_string(entry.size));
  }
  if (entry.compression == Compression::kDeflate &&
      !inflate_ratio_possible(entry.stored, entry.size)) {
    return corrupt(file, entry.header_offset,
                   "record " + quote(name) + ": " + std::to_string(entry.stored) +
                       " compressed bytes cannot hold the declared " + std::to_string(entry.size));
  }
  return {};
}

// One central header at `position` of the directory.
Result<ZipEntry> parse_central(const SourceFile& file, std::string_view directory,
                               std::size_t& position, std::uint64_t at) {
  const std::string_view rest = directory.substr(position);
  if (rest.size() < kCentralBytes || field<std::uint32_t>(rest, 0) != kCentralMagic) {
    return corrupt(file, at, "damaged zip directory");
  }
  const std::size_t name_size = field<std::uint16_t>(rest, 28);
  const std::size_t extra_size = field<std::uint16_t>(rest, 30);
  const std::size_t comment_size = field<std::uint16_t>(rest, 32);
  const std::size_t size = kCentralBytes + name_size + extra_size + comment_size;
  if (size > rest.size()) {
    return corrupt(file, at, "zip directory entry runs past the directory");
  }
  ZipEntry entry;
  entry.name = rest.substr(kCentralBytes, name_size);
  entry.crc = field<std::uint32_t>(rest, 16);
  entry.stored = field<std::uint32_t>(rest, 20);
  entry.size = field<std::uint32_t>(rest, 24);
  entry.header_offset = field<std::uint32_t>(rest, 42);
  const auto method = field<std::uint16_t>(rest, 10);
  TRY(check_method(file, entry.name, field<std::uint16_t>(rest, 8), method));
  if (field<std::uint16_t>(rest, 34) != 0) {
    return fail(ErrorCode::kUnsupported,
                file.name() + ": a zip file that is split into several parts");
  }
  entry.compression = method == kMethodDeflate ? Compression::kDeflate : Compression::kNone;
  TRY(resolve_zip64(file, at, rest.substr(kCentralBytes + name_size, extra_size),
                    {&entry.size, &entry.stored, &entry.header_offset}));
  TRY(check_entry(file, entry));
  position += size;
  return entry;
}

// Compares the sizes and the CRC in the local header with the central ones, which they repeat if no
// descriptor follows the data.
Status compare_sizes(const SourceFile& file, const ZipEntry& entry, std::string_view header,
                     std::string_view extra) {
  std::uint64_t stored = field<std::uint32_t>(header, 18);
  std::uint64_t size = field<std::uint32_t>(header, 22);
  TRY(resolve_zip64(file, entry.header_offset, extra, {&size, &stored}));
  if (field<std::uint32_t>(header, 14) != entry.crc || stored != entry.stored ||
      size != entry.size) {
    return corrupt(file, entry.header_offset,
                   "record " + quote(entry.name) +
                       ": the sizes or CRC in its header differ from those in the zip directory");
  }
  return {};
}

Status check_local(const SourceFile& file, const ZipEntry& entry, std::string_view header) {
  const auto flags = field<std::uint16_t>(header, 6);
  const auto method = field<std::uint16_t>(header, 8);
  TRY(check_method(file, entry.name, flags, method));
  if (header.substr(kLocalBytes, entry.name.size()) != entry.name ||
      field<std::uint16_t>(header, 26) != entry.name.size()) {
    return corrupt(file, entry.header_offset,
                   "record " + quote(entry.name) + " has another name in its own header");
  }
  if ((method == kMethodDeflate) != (entry.compression == Compression::kDeflate)) {
    return corrupt(
        file, entry.header_offset,
        "record " + quote(entry.name) +
            ": the compression method in its header differs from that in the zip directory");
  }
  return {};
}

// Reads the local header of `entry` into `buffer` and learns where the data starts.
Result<std::uint64_t> locate_one(const SourceFile& file, std::uint64_t limit, const ZipEntry& entry,
                                 std::string& buffer) {
  const std::uint64_t at = entry.header_offset;
  const std::size_t wanted = kLocalBytes + entry.name.size();
  if (!range_fits(at, wanted, limit)) {
    return corrupt(file, at, "record " + quote(entry.name) + " lies outside the file's data");
  }
  buffer.resize(wanted);
  TRY(file.read(at, writable(buffer)));
  if (field<std::uint32_t>(buffer, 0) != kLocalMagic) {
    return corrupt(file, at, "no header of record " + quote(entry.name));
  }
  TRY(check_local(file, entry, buffer));
  const std::size_t extra_size = field<std::uint16_t>(buffer, 28);
  const std::uint64_t data_offset = at + wanted + extra_size;
  if (!range_fits(data_offset, entry.stored, limit)) {
    return corrupt(file, at,
                   "record " + quote(entry.name) + " of " + std::to_string(entry.stored) +
                       " bytes runs past the file's data");
  }
  if ((field<std::uint16_t>(buffer, 6) & kFlagDescriptor) != 0) {
    return data_offset;
  }
  std::string extra(extra_size, '\0');
  if (field<std::uint32_t>(buffer, 18) == kIn64 || field<std::uint32_t>(buffer, 22) == kIn64) {
    TRY(file.read(at + wanted, writable(extra)));
  }
  TRY(compare_sizes(file, entry, buffer, extra));
  return data_offset;
}

}  // namespace

Result<ZipDirectoryRange> find_zip_directory(const SourceFile& file) {
  const auto tail_size = static_cast<std::size_t>(
      std::min<std::uint64_t>(file.size(), kEndBytes + kMaxCommentBytes + kZip64LocatorBytes));
  if (tail_size < kEndBytes) {
    return corrupt(file, file.size(), "too short for a zip file");
  }
  const std::uint64_t base = file.size() - tail_size;
  std::string tail(tail_size, '\0');
  TRY(file.read(base, writable(tail)));
  TRY_ASSIGN(auto end, find_end_record(file, tail));
  const std::string_view record = std::string_view(tail).substr(end);
  const auto entries = field<std::uint16_t>(record, 10);
  const std::size_t rest = record.size() - kEndBytes;
  const std::size_t behind = field<std::uint16_t>(record, 20) == rest ? 0 : rest;
  const ZipDirectoryRange old{.offset = field<std::uint32_t>(record, 16),
                              .size = field<std::uint32_t>(record, 12),
                              .entries = entries,
                              .bytes_behind = behind};
  if (field<std::uint32_t>(record, 4) != 0 || field<std::uint16_t>(record, 8) != entries) {
    return fail(ErrorCode::kUnsupported,
                file.name() + ": a zip file that is split into several parts");
  }
  const bool has_locator =
      end >= kZip64LocatorBytes &&
      field<std::uint32_t>(tail, end - kZip64LocatorBytes) == kZip64LocatorMagic;
  if (!has_locator) {
    return check_directory(file, old, base + end);
  }
  const std::size_t locator = end - kZip64LocatorBytes;
  TRY_ASSIGN(auto zip64,
             read_zip64_end(file, std::string_view(tail).substr(locator), base + locator));
  if (!agrees(old.entries, kEntriesIn64, zip64.range.entries) ||
      !agrees(old.size, kIn64, zip64.range.size) ||
      !agrees(old.offset, kIn64, zip64.range.offset)) {
    return corrupt(file, base + end, "the zip end record contradicts the zip64 end record");
  }
  zip64.range.bytes_behind = behind;
  return check_directory(file, zip64.range, zip64.offset);
}

Result<std::vector<ZipEntry>> parse_zip_directory(const SourceFile& file,
                                                  const std::string& directory,
                                                  const ZipDirectoryRange& range) {
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<std::size_t>(range.entries));
  std::size_t position = 0;
  for (std::uint64_t i = 0; i < range.entries; ++i) {
    TRY_ASSIGN(auto entry, parse_central(file, directory, position, range.offset + position));
    entries.push_back(entry);
  }
  if (position != directory.size()) {
    return corrupt(
        file, range.offset + position,
        "the zip directory contains more than its " + std::to_string(range.entries) + " records");
  }
  return entries;
}

Status locate_zip_data(const SourceFile& file, std::uint64_t directory_offset,
                       std::vector<ZipEntry>& entries) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto stands_before = [&](std::uint32_t a, std::uint32_t b) {
    return entries[a].header_offset < entries[b].header_offset;
  };
  std::sort(order.begin(), order.end(), stands_before);
  std::string buffer;
  std::uint64_t previous_end = 0;
  const auto hides_bytes = [&](std::uint64_t next) {
    return next - previous_end > kMaxDescriptorBytes;
  };
  for (const std::uint32_t index : order) {
    ZipEntry& entry = entries[index];
    if (index == order.front() && entry.header_offset != 0) {
      return corrupt(file, 0, "bytes before the first zip record");
    }
    if (entry.header_offset < previous_end) {
      return corrupt(file, entry.header_offset,
                     "record " + quote(entry.name) + " overlaps the one before it");
    }
    if (hides_bytes(entry.header_offset)) {
      return corrupt(file, previous_end, "bytes that do not belong to a zip record");
    }
    TRY_ASSIGN(entry.data_offset, locate_one(file, directory_offset, entry, buffer));
    previous_end = entry.data_offset + entry.stored;
  }
  if (hides_bytes(directory_offset)) {
    return corrupt(file, previous_end, "bytes that do not belong to a zip record");
  }
  return {};
}

}  // namespace onnx_external
