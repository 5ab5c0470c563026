#include "checkpoint/zip_archive.h"

#include <algorithm>
#include <numeric>
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

// <0, 0, >0, ignoring ASCII case: torch's own reader looks names up that way.
int compare_folded(std::string_view a, std::string_view b) {
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    const char x = lower(a[i]);
    const char y = lower(b[i]);
    if (x != y) {
      return x < y ? -1 : 1;
    }
  }
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

}  // namespace

Result<ZipArchive> ZipArchive::open(std::shared_ptr<const SourceFile> file) {
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
  status = archive.index_names();
  if (status) {
    status = locate_zip_data(*archive.file_, range->offset, archive.entries_);
  }
  if (!status) {
    return fail(std::move(status).error());
  }
  return archive;
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
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return compare_folded(name_in_root(a), name_in_root(b)) < 0;
  });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    if (compare_folded(name_in_root(by_name_[i - 1]), name_in_root(by_name_[i])) == 0) {
      return fail(ErrorCode::kCorrupt, file_->name() + ": record " +
                                           quote(entries_[by_name_[i]].name) +
                                           ": two zip records have this name");
    }
  }
  return {};
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::uint32_t index, std::string_view key) {
                                        return compare_folded(name_in_root(index), key) < 0;
                                      });
  if (found == by_name_.end() || name_in_root(*found) != name) {
    return nullptr;
  }
  return &entries_[*found];
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
