#include "checkpoint/inflated_storages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/inflate.h"

namespace onnx_external {
namespace {

Result<UniqueFd> inflate_to_file(const std::filesystem::path& folder, const Storage& storage,
                                 const SourceFile& file) {
  auto fd = open_nameless_file(folder);
  if (!fd) {
    return fd;
  }
  const std::string name = "temporary file in " + folder.string();
  Crc32 crc;
  std::uint64_t written = 0;
  auto status = inflate_range(
      file, {.offset = storage.offset, .stored = storage.stored_bytes, .size = storage.bytes},
      [&](std::span<const std::byte> piece) -> Status {
        crc.update(piece);
        auto wrote = write_all(fd->get(), written, piece, name);
        written += piece.size();
        return wrote;
      });
  if (!status) {
    return fail(std::move(status).error());
  }
  if (storage.crc32 && *storage.crc32 != crc.value()) {
    return fail(ErrorCode::kCorrupt, file.name() + ": byte " + std::to_string(storage.offset) +
                                         ": a compressed record is damaged (CRC-32 differs); copy "
                                         "or download the file again");
  }
  return fd;
}

}  // namespace

Result<UniqueFd> open_nameless_file(const std::filesystem::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string pattern = (folder / "onnx_external_XXXXXX").string();  // no O_TMPFILE there
    fd = UniqueFd(::mkostemp(pattern.data(), O_CLOEXEC));
    if (fd) {
      ::unlink(pattern.c_str());
    }
  }
  if (!fd) {
    return fail(errno_error(errno, "make a temporary file in '" + folder.string() + "'"));
  }
  return fd;
}

Result<int> InflatedStorages::get(std::uint32_t index, const Storage& storage,
                                  const SourceFile& file) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& owner = slots_[index];
    if (!owner) {
      owner = std::make_unique<Slot>();
    }
    slot = owner.get();
  }
  const std::lock_guard lock(slot->mutex);
  if (!slot->fd) {
    auto fd = inflate_to_file(scratch_dir_, storage, file);
    if (!fd) {
      return fail(std::move(fd).error());
    }
    slot->fd = *std::move(fd);
  }
  return slot->fd.get();
}

}  // namespace onnx_external
