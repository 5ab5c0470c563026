#include "checkpoint/container/zip_archive.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/inflate.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container/zip_directory.h"

namespace onnx_external {
namespace {

// torch's own reader looks names up ignoring ASCII case.
std::uint64_t folded_hash(std::string_view name) {
  return NameHash{}(ascii_lower(name));
}

}  // namespace

Result<ZipArchive> ZipArchive::open(std::shared_ptr<const SourceFile> file) {
  TRY_ASSIGN(auto range, find_zip_directory(*file));
  ZipArchive archive;
  archive.directory_ = std::make_unique<std::string>(static_cast<std::size_t>(range.size), '\0');
  TRY(file->read(range.offset, std::as_writable_bytes(std::span(*archive.directory_))));
  TRY_ASSIGN(archive.entries_, parse_zip_directory(*file, *archive.directory_, range));
  archive.bytes_behind_ = range.bytes_behind;
  archive.file_ = std::move(file);
  TRY(archive.index_names());
  TRY(locate_zip_data(*archive.file_, range.offset, archive.entries_));
  return archive;
}

Status ZipArchive::index_names() {
  const auto is_bare = [](const ZipEntry& entry) { return entry.name == "data.pkl"; };
  if (std::any_of(entries_.begin(), entries_.end(), is_bare)) {
    return fail(ErrorCode::kUnsupported,
                file_->name() +
                    ": a torch file that was repacked without its folder: 'data.pkl' is at the "
                    "root, where torch does not find it; pack it again with a folder: mkdir m; "
                    "unzip FILE -d m; zip -0 -r m.pt m");
  }
  const bool flat = !entries_.empty() && entries_[0].name.find('/') == std::string_view::npos;
  for (const ZipEntry& entry : flat ? std::span<const ZipEntry>() : std::span(entries_)) {
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string_view::npos || slash == 0) {
      return fail(ErrorCode::kUnsupported,
                  file_->name() + ": record " + quote(entry.name) +
                      ": is not in a folder; this zip file is not a PyTorch checkpoint");
    }
    const std::string_view folder = entry.name.substr(0, slash);
    if (root_.empty()) {
      root_ = folder;
    }
    if (folder != root_) {
      return fail(ErrorCode::kCorrupt, file_->name() + ": record " + quote(entry.name) +
                                           ": is outside the folder " + quote(root_));
    }
  }
  by_name_ = table_for<decltype(by_name_)>(entries_.size());
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    if (!by_name_.emplace(folded_hash(name_in_root(entries_[i])), i).second) {
      return fail(ErrorCode::kCorrupt, file_->name() + ": record " + quote(entries_[i].name) +
                                           ": two zip records have this name");
    }
  }
  return {};
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found = by_name_.find(folded_hash(name));
  const bool is_there = found != by_name_.end() && name_in_root(entries_[found->second]) == name;
  return is_there ? &entries_[found->second] : nullptr;
}

Result<std::string> ZipArchive::read_record(const ZipEntry& entry, std::uint64_t max_bytes) const {
  const std::string where = file_->name() + ": record " + quote(entry.name);
  if (entry.size > max_bytes) {
    return fail(ErrorCode::kUnsupported, where + ": " + std::to_string(entry.size) +
                                             " bytes, more than the limit of " +
                                             std::to_string(max_bytes));
  }
  if (entry.compression != Compression::kNone && entry.size > most_inflated_bytes()) {
    return fail(ErrorCode::kUnsupported,
                where + ": it inflates to " + std::to_string(entry.size) +
                    " bytes, but the limit for a file of " + std::to_string(file_->size()) +
                    " bytes is " + std::to_string(most_inflated_bytes()) +
                    " bytes; if the file is trusted, zip its records again without compression");
  }
  std::string text;
  if (entry.compression == Compression::kDeflate) {
    TRY_ASSIGN(text, inflate_to_string(*file_, {.offset = entry.data_offset,
                                                .stored = entry.stored,
                                                .size = entry.size}));
  } else {
    text.resize(static_cast<std::size_t>(entry.size));
    TRY(file_->read(entry.data_offset, std::as_writable_bytes(std::span(text))));
  }
  Crc32 crc;
  crc.update(std::as_bytes(std::span(text)));
  if (entry.crc != 0 && crc.value() != entry.crc) {
    return fail(
        ErrorCode::kCorrupt,
        where + ": its bytes are damaged (CRC-32 differs); copy or download the file again");
  }
  return text;
}

}  // namespace onnx_external
