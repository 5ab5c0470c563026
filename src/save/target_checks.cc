#include "save/target_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/checked_math.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "save/output_names.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kBlockBytes = 512;  // the unit of st_blocks
constexpr std::uint64_t kMaxFatFileBytes = std::numeric_limits<std::uint32_t>::max();

Status check_names(const Directory& out, const TargetNeeds& needs) {
  const long longest = ::fpathconf(out.fd(), _PC_NAME_MAX);
  std::error_code ignored;
  const std::filesystem::path folder =
      std::filesystem::absolute(out.path(), ignored) / needs.folder;
  const auto check = [&](const std::string& name) -> Status {
    if (longest > 0 && name.size() > static_cast<std::size_t>(longest)) {
      return fail(ErrorCode::kIo,
                  fmt::format("{}: {} has {} bytes, but names on this file system have at most {}",
                              out.path().string(), quote(name), name.size(), longest));
    }
    if (folder.native().size() + 1 + name.size() >= PATH_MAX) {
      return fail(ErrorCode::kIo, fmt::format("{}: the path of {} would be longer than {} bytes; "
                                              "save to a folder with a shorter path",
                                              out.path().string(), quote(name), PATH_MAX - 1));
    }
    return {};
  };
  for (const std::string& name : needs.names) {
    TRY(check(name));
  }
  for (const PlannedFile& file : needs.files) {
    TRY(check(file.name));
  }
  return {};
}

Status check_file_sizes(const Directory& out, const TargetNeeds& needs) {
  const auto largest =
      std::max_element(needs.files.begin(), needs.files.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (largest == needs.files.end()) {
    return {};
  }
  const auto too_large = [&](std::uint64_t limit, const char* whose) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: would have {}, but {} {}", out.child(largest->name),
                            size_text(largest->bytes), whose, size_text(limit)));
  };
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      largest->bytes > limit.rlim_cur) {
    return too_large(limit.rlim_cur, "this process can write only files of at most (ulimit -f)");
  }
  struct statfs system {};
  if (::fstatfs(out.fd(), &system) == 0 && system.f_type == MSDOS_SUPER_MAGIC &&
      largest->bytes > kMaxFatFileBytes) {
    return too_large(kMaxFatFileBytes, "files on a FAT file system have at most");
  }
  return {};
}

// Returns nullopt if the file system does not report it.
std::optional<std::uint64_t> free_bytes(const Directory& out) {
  struct statvfs system {};
  if (::fstatvfs(out.fd(), &system) != 0 || system.f_blocks == 0) {
    return std::nullopt;
  }
  const bool may_use_reserve = ::geteuid() == 0;
  return checked_mul(may_use_reserve ? system.f_bfree : system.f_bavail, system.f_frsize);
}

Status check_free_bytes(const Directory& out, const TargetNeeds& needs) {
  std::uint64_t wanted = 0;
  for (const PlannedFile& file : needs.files) {
    wanted = checked_add(wanted, file.bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  }
  wanted -= std::min(wanted, needs.bytes_there);
  const auto free = free_bytes(out);
  if (!free || *free >= wanted) {
    return {};
  }
  return fail(ErrorCode::kIo,
              fmt::format("{}: the save needs {} on this disk, but {} are free; free some space (a "
                          "model that is replaced remains until the new one is complete)",
                          out.path().string(), size_text(wanted), size_text(*free)));
}

// A sync takes as long as copying about so much.
constexpr std::uint64_t kMinProbedBytes = std::uint64_t{16} << 20;

Sync probed_sync(const TransactionOptions& options) {
  const auto add = [](std::uint64_t sum, const PlannedFile& file) {
    return sum + std::min(file.bytes, kMinProbedBytes);
  };
  const std::uint64_t bytes =
      std::accumulate(options.files.begin(), options.files.end(), std::uint64_t{0}, add);
  return bytes < kMinProbedBytes ? Sync::kNone : options.sync;
}

// Removes the file from the folder at the end.
class Probe {
 public:
  Probe(const Directory& folder, std::string name) : folder_(folder), name_(std::move(name)) {}
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() { (void)::unlinkat(folder_.fd(), name_.c_str(), 0); }

  [[nodiscard]] Status put(const Directory& staging, Replace replace, Sync sync) const {
    TRY(write_file(staging, name_, "", sync));
    return rename_entry(staging, name_, folder_, name_, replace);
  }

 private:
  const Directory& folder_;
  std::string name_;
};

}  // namespace

std::uint64_t allocated_bytes(const Directory& data, const std::vector<PlannedFile>& files) {
  std::uint64_t bytes = 0;
  for (const PlannedFile& file : files) {
    struct stat info {};
    if (::fstatat(data.fd(), file.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode)) {
      bytes += std::min(static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes, file.bytes);
    }
  }
  return bytes;
}

Status check_target_limits(const Directory& out, const TargetNeeds& needs) {
  TRY(check_names(out, needs));
  TRY(check_file_sizes(out, needs));
  return check_free_bytes(out, needs);
}

// The probe has the name of a staging folder, so that the next save removes a probe that was left
// behind.
Status check_target_calls(const Directory& out, const Directory& staging,
                          const TransactionOptions& options) {
  const Sync sync = probed_sync(options);
  TRY_ASSIGN(auto name, random_staging_name());
  const Probe probe(out, std::move(name));
  TRY(probe.put(staging, Replace::kNo, sync));
  TRY(options.overwrite == Overwrite::kAllow ? probe.put(staging, Replace::kYes, Sync::kNone)
                                             : Status());
  return sync_folder(out, sync);
}

}  // namespace onnx_external
