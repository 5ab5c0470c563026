#include "checkpoint/storage/inflated_storages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "base/checked_math.h"
#include "base/digest.h"
#include "base/inflate.h"
#include "base/try.h"

namespace onnx_external {
namespace {

Status inflate_to_file(int fd, std::uint64_t offset, const std::filesystem::path& folder,
                       const Storage& storage, const SourceFile& file) {
  const std::string name = "temporary file in " + folder.string();
  Crc32 crc;
  std::uint64_t written = 0;
  TRY(inflate_range(
      file, {.offset = storage.offset, .stored = storage.stored_bytes, .size = storage.bytes},
      [&](std::span<const std::byte> chunk) -> Status {
        crc.update(chunk);
        auto wrote = write_all(fd, offset + written, chunk, name);
        written += chunk.size();
        return wrote;
      }));
  if (storage.crc32 && *storage.crc32 != crc.value()) {
    return fail(ErrorCode::kCorrupt, file.name() + ": byte " + std::to_string(storage.offset) +
                                         ": a compressed record is damaged (CRC-32 differs); copy "
                                         "or download the file again");
  }
  return {};
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
    return fail(errno_error(errno, "cannot create a temporary file in '" + folder.string() + "'"));
  }
  return fd;
}

// Opens the file if necessary and reserves a range in it when a storage is first requested.
Result<InflatedStorages::Slot*> InflatedStorages::slot_of(std::uint32_t index,
                                                          const Storage& storage) {
  const std::lock_guard lock(mutex_);
  auto& owner = slots_[index];
  if (!fd_) {
    TRY_ASSIGN(fd_, open_nameless_file(scratch_dir_));
  }
  if (!owner) {
    const auto end = checked_add(end_, storage.bytes);
    if (!end) {
      return fail(ErrorCode::kUnsupported, "compressed records of more than 2^64 bytes");
    }
    owner = std::make_unique<Slot>();
    owner->offset = std::exchange(end_, *end);
  }
  return owner.get();
}

Result<InflatedStorages::Place> InflatedStorages::get(std::uint32_t index, const Storage& storage,
                                                      const SourceFile& file) {
  TRY_ASSIGN(const auto slot, slot_of(index, storage));
  const std::lock_guard lock(slot->mutex);
  if (!slot->inflated) {
    TRY(inflate_to_file(fd_.get(), slot->offset, scratch_dir_, storage, file));
    slot->inflated = true;
  }
  return Place{.fd = fd_.get(), .offset = slot->offset};
}

}  // namespace onnx_external
