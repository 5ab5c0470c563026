#include "save/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/checked_math.h"
#include "base/file.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/manifest.h"
#include "save/output_folder.h"
#include "save/record.h"

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
    return too_large(limit.rlim_cur,
                     "the largest file that this process can write (ulimit -f) has");
  }
  struct statfs system {};
  if (::fstatfs(out.fd(), &system) == 0 && system.f_type == MSDOS_SUPER_MAGIC &&
      largest->bytes > kMaxFatFileBytes) {
    return too_large(kMaxFatFileBytes, "the largest file on a FAT file system has");
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

bool has_manifest_in_folder(const TransactionOptions& options) {
  return options.layout == Layout::kPerTensor && options.is_of_one();
}

std::string manifest_name(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options)
             ? std::string(kManifestName)
             : manifest_file_name(numbered_stem(model, options.data_dir));
}

std::string manifest_location(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options) ? options.data_dir + "/" + manifest_name(options, model)
                                         : manifest_name(options, model);
}

std::string manifest_entry(const TransactionOptions& options, const std::string& model) {
  return has_manifest_in_folder(options) ? options.data_dir : manifest_name(options, model);
}

std::vector<std::string> data_entries(const TransactionOptions& options) {
  if (has_manifest_in_folder(options)) {
    return {options.data_dir};
  }
  std::vector<std::string> entries;
  for (const std::string& model : options.models) {
    entries.push_back(manifest_name(options, model));
  }
  if (options.layout == Layout::kPerTensor) {
    if (!options.files.empty()) {
      entries.push_back(options.data_dir);
    }
    return entries;
  }
  for (const PlannedFile& file : options.files) {
    if (file.name != options.models.front()) {  // its rename is the commit
      entries.push_back(file.name);
    }
  }
  return entries;
}

Status remove_all_but(const Directory& folder, const EntryNames& spared) {
  TRY_ASSIGN(const auto entries, folder.entries());
  for (const std::string& entry : entries) {
    TRY(spared.contains(entry) ? Status() : folder.remove_tree(entry));
  }
  return {};
}

Result<OutputFile> create_file(const Directory& folder, const std::string& name,
                               std::uint64_t bytes) {
  TRY_ASSIGN(auto file, OutputFile::create(folder, name));
  TRY(file.preallocate(bytes));
  return file;
}

Status write_file(const Directory& folder, const std::string& name, std::string_view content,
                  Sync sync) {
  TRY_ASSIGN(auto file, create_file(folder, name, content.size()));
  TRY(file.write(0, std::as_bytes(std::span(content))));
  TRY(sync == Sync::kFiles ? file.sync() : Status());
  return file.close();
}

Status sync_folder(const Directory& folder, Sync sync) {
  return sync == Sync::kFiles ? folder.sync() : Status();
}

Status Staging::take_over(const Directory& out, const std::string& name,
                          const TransactionOptions& options) {
  TRY_ASSIGN(auto folder, out.open_folder(name));
  name_ = name;
  folder_ = std::move(folder);
  taken_over_ = true;
  TRY(clear(options));
  return open_data(out, options);
}

Status Staging::clear(const TransactionOptions& options) const {
  const bool has_folder = options.layout == Layout::kPerTensor;
  EntryNames files;
  for (const PlannedFile& file : options.files) {
    files.insert(file.name);
  }
  EntryNames top = has_folder ? EntryNames{options.data_dir} : files;
  top.emplace(kRecordName);
  TRY(remove_all_but(*folder_, top));
  if (!has_folder) {
    return {};
  }
  const auto data = folder_->open_folder(options.data_dir);
  return data ? remove_all_but(*data, files) : Status();
}

Status Staging::make(const Directory& out, const TransactionOptions& options) {
  TRY_ASSIGN(auto name, random_staging_name());
  if (Status made = out.make_folder(name, kStagingMode); !made) {
    if (::faccessat(out.fd(), ".", W_OK | X_OK, AT_EACCESS) == 0) {
      return made;
    }
    Error error = errno_error(errno, out.path().string() + ": cannot write into the folder");
    error.message += "; change its permissions, or choose another folder";
    return fail(std::move(error));
  }
  name_ = std::move(name);
  TRY_ASSIGN(folder_, out.open_folder(name_));
  return open_data(out, options);
}

// Makes the data folder where it is missing.
Status Staging::open_data(const Directory& out, const TransactionOptions& options) {
  const bool has_folder = options.layout == Layout::kPerTensor;
  if (has_folder) {
    Status made = folder_->make_folder(options.data_dir, kPublishedFolderMode);
    if (!made && made.error().code != ErrorCode::kAlreadyExists) {
      return made;
    }
  }
  TRY_ASSIGN(data_, has_folder ? folder_->open_folder(options.data_dir) : out.open_folder(name_));
  return {};
}

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
