// Writes zip archives into a string: as torch does, as other tools do, or with a false value in any
// field.
//
//   ZipBuilder zip;
//   zip.add({.name = "archive/data.pkl", .data = pickle});
//   std::string bytes = zip.finish();
#pragma once

#include <zlib.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onnx_external {

// Appends the `size` low bytes of `value`, least significant first.
inline void put_le(std::string& out, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) {
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
}

// Overwrites bytes of a finished archive.
inline void poke_le(std::string& bytes, std::size_t position, std::uint64_t value, int size) {
  std::string raw;
  put_le(raw, value, size);
  bytes.replace(position, raw.size(), raw);
}

inline std::uint32_t crc32_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

inline std::string raw_deflate(std::string_view bytes) {
  z_stream stream{};
  ::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, static_cast<uLong>(bytes.size())) + 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

// The fields of a local or central header before they are written. A test may change them.
struct ZipFields {
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t stored = 0;  // written as 32 bits
  std::uint64_t size = 0;    // written as 32 bits
  std::uint64_t offset = 0;  // of the local header; central only
  std::uint16_t disk = 0;    // central only
  std::string name = {};
  std::string extra = {};
};

struct ZipRecord {
  std::string name = {};  // whole name: "archive/data/0"
  std::string data = {};  // uncompressed
  bool deflated = false;
  bool descriptor = true;        // as in torch: sizes follow the data, and are 0 in the local
                                 // header
  std::uint32_t alignment = 64;  // of the data, with an extra field "FB" in the local header; 0 for
                                 // none
  std::function<void(ZipFields&)> local_lie = {};
  std::function<void(ZipFields&)> central_lie = {};
};

// The fields of the end records before they are written.
struct ZipEnd {
  std::uint64_t entries = 0;
  std::uint64_t directory_size = 0;
  std::uint64_t directory_offset = 0;
  std::uint16_t disk = 0;
  bool zip64 = true;                                // torch always writes the zip64 end records
  std::uint64_t zip64_offset = 0;                   // where the locator points
  std::optional<std::uint64_t> zip64_entries = {};  // if not `entries`
  std::string comment = {};
};

class ZipBuilder {
 public:
  void add(const ZipRecord& record) {
    ZipFields fields;
    const std::string stored = record.deflated ? raw_deflate(record.data) : record.data;
    const bool descriptor = record.descriptor && !record.data.empty();
    fields.flags = static_cast<std::uint16_t>(descriptor ? 0x0808 : 0x0800);
    fields.method = record.deflated ? 8 : 0;
    fields.crc = crc32_of(record.data);
    fields.stored = stored.size();
    fields.size = record.data.size();
    fields.offset = bytes_.size();
    fields.name = record.name;

    ZipFields local = fields;
    if (descriptor) {
      local.crc = 0;
      local.stored = 0;
      local.size = 0;
    }
    if (record.alignment != 0) {
      const std::size_t start = bytes_.size() + 30 + record.name.size() + 4;
      const std::size_t fill = (record.alignment - start % record.alignment) % record.alignment;
      local.extra = "FB";
      put_le(local.extra, fill, 2);
      local.extra.append(fill, 'Z');
    }
    if (record.local_lie) {
      record.local_lie(local);
    }
    put_local(local);
    data_offsets_.push_back(bytes_.size());
    bytes_ += stored;
    if (descriptor) {
      put_le(bytes_, 0x08074b50, 4);
      put_le(bytes_, fields.crc, 4);
      put_le(bytes_, fields.stored, 4);
      put_le(bytes_, fields.size, 4);
    }
    if (record.central_lie) {
      record.central_lie(fields);
    }
    put_central(fields);
    ++entries_;
  }

  // Appends bytes that belong to no record.
  void add_raw(std::string_view bytes) { bytes_ += bytes; }

  // Returns the offset of the data of record `index` in the finished archive.
  [[nodiscard]] std::size_t data_offset(std::size_t index) const { return data_offsets_[index]; }
  [[nodiscard]] std::size_t size_so_far() const { return bytes_.size(); }

  // Returns the complete archive. `lie` may change the end records first.
  [[nodiscard]] std::string finish(const std::function<void(ZipEnd&)>& lie = {}) const {
    ZipEnd end;
    end.entries = entries_;
    end.directory_offset = bytes_.size();
    end.directory_size = directory_.size();
    end.zip64_offset = bytes_.size() + directory_.size();
    if (lie) {
      lie(end);
    }
    std::string out = bytes_ + directory_;
    if (end.zip64) {
      put_zip64_end(out, end);
    }
    put_le(out, 0x06054b50, 4);
    put_le(out, end.disk, 2);
    put_le(out, end.disk, 2);
    put_le(out, end.entries > 0xffff ? 0xffff : end.entries, 2);
    put_le(out, end.entries > 0xffff ? 0xffff : end.entries, 2);
    put_le(out, end.directory_size, 4);
    put_le(out, end.directory_offset, 4);
    put_le(out, end.comment.size(), 2);
    return out + end.comment;
  }

 private:
  static void put_common(std::string& out, const ZipFields& fields) {
    put_le(out, 0, 2);  // version needed, as miniz writes it
    put_le(out, fields.flags, 2);
    put_le(out, fields.method, 2);
    put_le(out, 0, 4);  // time and date
    put_le(out, fields.crc, 4);
    put_le(out, fields.stored, 4);
    put_le(out, fields.size, 4);
    put_le(out, fields.name.size(), 2);
    put_le(out, fields.extra.size(), 2);
  }

  void put_local(const ZipFields& fields) {
    put_le(bytes_, 0x04034b50, 4);
    put_common(bytes_, fields);
    bytes_ += fields.name + fields.extra;
  }

  void put_central(const ZipFields& fields) {
    put_le(directory_, 0x02014b50, 4);
    put_le(directory_, 0, 2);  // version made by
    put_common(directory_, fields);
    put_le(directory_, 0, 2);  // comment length
    put_le(directory_, fields.disk, 2);
    put_le(directory_, 0, 6);  // attributes
    put_le(directory_, fields.offset, 4);
    directory_ += fields.name + fields.extra;
  }

  static void put_zip64_end(std::string& out, const ZipEnd& end) {
    const std::uint64_t entries = end.zip64_entries.value_or(end.entries);
    put_le(out, 0x06064b50, 4);
    put_le(out, 44, 8);
    put_le(out, 0, 4);  // versions
    put_le(out, end.disk, 4);
    put_le(out, end.disk, 4);
    put_le(out, entries, 8);
    put_le(out, entries, 8);
    put_le(out, end.directory_size, 8);
    put_le(out, end.directory_offset, 8);
    put_le(out, 0x07064b50, 4);
    put_le(out, 0, 4);
    put_le(out, end.zip64_offset, 8);
    put_le(out, 1, 4);
  }

  std::string bytes_;
  std::string directory_;
  std::vector<std::size_t> data_offsets_;
  std::uint64_t entries_ = 0;
};

}  // namespace onnx_external
