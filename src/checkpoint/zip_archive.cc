#include "checkpoint/zip_archive.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/inflate.h"
#include "base/text.h"
#include "checkpoint/zip_directory.h"

namespace onnx_external {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// torch's own reader looks names up ignoring ASCII case.
bool equal_folded(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

// FNV-1a of the name in lower case.
std::uint64_t folded_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(lower(c))) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

Result<ZipArchive> ZipArchive::open(std::shared_ptr<const SourceFile> file) {
  auto archive = open_names(std::move(file));
  Status located = archive ? archive->locate() : Status();
  return located ? std::move(archive) : fail(std::move(located).error());
}

Result<ZipArchive> ZipArchive::open_names(std::shared_ptr<const SourceFile> file) {
  auto range = find_zip_directory(*file);
  if (!range) {
    return fail(std::move(range).error());
  }
  ZipArchive archive;
  archive.directory_ = std::make_unique<std::string>(static_cast<std::size_t>(range->size), '\0');
  auto status = file->read(range->offset, std::as_writable_bytes(std::span(*archive.directory_)));
  if (!status) {
    return fail(std::move(status).error());
  }
  auto entries = parse_zip_directory(*file, *archive.directory_, *range);
  if (!entries) {
    return fail(std::move(entries).error());
  }
  archive.entries_ = *std::move(entries);
  archive.file_ = std::move(file);
  archive.directory_offset_ = range->offset;
  if (status = archive.index_names(); !status) {
    return fail(std::move(status).error());
  }
  return archive;
}

Status ZipArchive::locate() {
  return locate_zip_data(*file_, directory_offset_, entries_);
}

Result<std::string> ZipArchive::read_unlocated(const ZipEntry& entry,
                                               std::uint64_t max_bytes) const {
  ZipEntry located = entry;
  if (Status status = locate_zip_entry(*file_, directory_offset_, located); !status) {
    return fail(std::move(status).error());
  }
  return read_record(located, max_bytes);
}

Status ZipArchive::index_names() {
  const bool flat = !entries_.empty() && entries_[0].name.find('/') == std::string_view::npos;
  for (const ZipEntry& entry : flat ? std::span<const ZipEntry>() : std::span(entries_)) {
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string_view::npos || slash == 0) {
      return fail(ErrorCode::kUnsupported,
                  file_->name() + ": record " + quote(entry.name) +
                      ": lies in no folder; this zip file is not a PyTorch checkpoint");
    }
    const std::string_view folder = entry.name.substr(0, slash);
    if (root_.empty()) {
      root_ = folder;
    }
    if (folder != root_) {
      return fail(ErrorCode::kCorrupt, file_->name() + ": record " + quote(entry.name) +
                                           ": lies outside the folder " + quote(root_));
    }
  }
  by_name_.reserve(entries_.size());
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    by_name_.emplace_back(folded_hash(name_in_root(i)), i);
  }
  std::sort(by_name_.begin(), by_name_.end());
  return refuse_twins();
}

// Names of one hash stand together; a file that makes many of them on purpose is no checkpoint.
Status ZipArchive::refuse_twins() const {
  constexpr std::size_t kMaxAlike = 64;
  for (std::size_t i = 0; i < by_name_.size(); ++i) {
    for (std::size_t j = i; j-- > 0 && by_name_[j].first == by_name_[i].first;) {
      const bool twins =
          equal_folded(name_in_root(by_name_[j].second), name_in_root(by_name_[i].second));
      if (twins || i - j > kMaxAlike) {
        return fail(ErrorCode::kCorrupt,
                    file_->name() + ": record " + quote(entries_[by_name_[i].second].name) +
                        (twins ? ": two zip records have this name"
                               : ": too many zip records have names that look alike"));
      }
    }
  }
  return {};
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const std::uint64_t hash = folded_hash(name);
  auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), std::pair(hash, std::uint32_t{0}));
  for (; found != by_name_.end() && found->first == hash; ++found) {
    if (name_in_root(found->second) == name) {
      return &entries_[found->second];
    }
  }
  return nullptr;
}

Result<std::string> ZipArchive::read_record(const ZipEntry& entry, std::uint64_t max_bytes) const {
  const std::string where = file_->name() + ": record " + quote(entry.name);
  if (entry.size > max_bytes) {
    return fail(ErrorCode::kUnsupported, where + ": " + std::to_string(entry.size) +
                                             " bytes, more than the limit of " +
                                             std::to_string(max_bytes));
  }
  std::string text;
  if (entry.compression == Compression::kDeflate) {
    auto inflated = inflate_to_string(
        *file_, {.offset = entry.data_offset, .stored = entry.stored, .size = entry.size});
    if (!inflated) {
      return fail(std::move(inflated).error());
    }
    text = *std::move(inflated);
  } else {
    text.resize(static_cast<std::size_t>(entry.size));
    auto status = file_->read(entry.data_offset, std::as_writable_bytes(std::span(text)));
    if (!status) {
      return fail(std::move(status).error());
    }
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
