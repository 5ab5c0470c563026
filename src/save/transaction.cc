#include "save/transaction.h"

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
#include <new>
#include <optional>
#include <set>
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
#include "save/recovery.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kBlockBytes = 512;  // the unit of st_blocks
constexpr std::uint64_t kMaxFatFileBytes = std::numeric_limits<std::uint32_t>::max();

Status check_names(const Directory& out, const TransactionOptions& options) {
  const long longest = ::fpathconf(out.fd(), _PC_NAME_MAX);
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::absolute(out.path(), ignored) /
                                       (options.has_folder() ? options.data_dir : "");
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
  for (const std::string& model : options.models) {
    TRY(check(model));
  }
  for (const std::string& model : options.models) {
    TRY(check(manifest_name(options, model)));
  }
  for (const PlannedFile& file : options.files) {
    TRY(check(file.name));
  }
  return {};
}

Status check_file_sizes(const Directory& out, const std::vector<PlannedFile>& files) {
  const auto largest = std::max_element(
      files.begin(), files.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (largest == files.end()) {
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

// Returns 2^64 - 1 for more bytes.
std::uint64_t total_bytes(const std::vector<PlannedFile>& files) {
  std::uint64_t total = 0;
  for (const PlannedFile& file : files) {
    total = checked_add(total, file.bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  }
  return total;
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

Status check_free_bytes(const Directory& out, std::uint64_t wanted) {
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

// Renames an empty file from the staging folder into the output folder, as publishing will, and
// over another file if the save may replace files. If there is much to copy, also syncs. Storage
// buckets that are mounted as file systems do not support some of these calls. The probe has the
// name of a staging folder, so that the next save removes a probe that was left behind.
Status check_target_calls(const Directory& out, const Directory& staging,
                          const TransactionOptions& options) {
  const bool is_much = total_bytes(options.files) >= kMinProbedBytes;
  const Sync sync = is_much ? options.sync : Sync::kNone;
  TRY_ASSIGN(auto name, random_staging_name());
  const Probe probe(out, std::move(name));
  TRY(probe.put(staging, Replace::kNo, sync));
  TRY(options.overwrite == Overwrite::kAllow ? probe.put(staging, Replace::kYes, Sync::kNone)
                                             : Status());
  return sync_folder(out, sync);
}

}  // namespace

std::string manifest_name(const TransactionOptions& options, const std::string& model) {
  return options.has_manifest_in_folder()
             ? std::string(kManifestName)
             : manifest_file_name(numbered_stem(model, options.data_dir));
}

std::string manifest_location(const TransactionOptions& options, const std::string& model) {
  return options.has_manifest_in_folder() ? options.data_dir + "/" + manifest_name(options, model)
                                          : manifest_name(options, model);
}

std::vector<std::string> data_entries(const TransactionOptions& options) {
  if (options.has_manifest_in_folder()) {
    return {options.data_dir};
  }
  std::vector<std::string> entries;
  for (const std::string& model : options.models) {
    entries.push_back(manifest_name(options, model));
  }
  if (options.has_folder()) {
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

Status write_file(const Directory& folder, const std::string& name, std::string_view content,
                  Sync sync) {
  TRY_ASSIGN(auto file, OutputFile::create(folder, name, content.size()));
  TRY(file.write(0, std::as_bytes(std::span(content))));
  TRY(sync == Sync::kFiles ? file.sync() : Status());
  return file.close();
}

Status sync_folder(const Directory& folder, Sync sync) {
  return sync == Sync::kFiles ? folder.sync() : Status();
}

Result<std::string> make_staging_folder(const Directory& out) {
  TRY_ASSIGN(auto name, random_staging_name());
  if (Status made = out.make_folder(name, kStagingMode); !made) {
    if (::faccessat(out.fd(), ".", W_OK | X_OK, AT_EACCESS) == 0) {
      return fail(std::move(made).error());
    }
    Error error = errno_error(errno, out.path().string() + ": cannot write into the folder");
    error.message += "; change its permissions, or choose another folder";
    return fail(std::move(error));
  }
  return name;
}

Result<std::unique_ptr<Transaction>> Transaction::begin(OutputFolder out,
                                                        TransactionOptions options) {
  TRY(check_set_names(options.models, options.data_dir));
  TRY(check_models(out.directory, options.models, options.overwrite));
  // Its destructor undoes the steps that were done.
  std::unique_ptr<Transaction> begun(new Transaction(std::move(out), std::move(options)));
  const std::string killed = begun->killed_before();
  TRY(check_target_limits(begun->out(), begun->options_, begun->bytes_there(killed)));
  TRY(begun->reserve_descriptors());
  TRY(begun->open_staging(killed));
  return begun;
}

Transaction::~Transaction() {
  try {
    if (!is_committed_) {
      roll_back();
    }
  } catch (const std::bad_alloc&) {
    return;  // the staging folder is removed last, so the next save finds what is left
  }
}

std::string Transaction::killed_before() const {
  const auto& killed = folder_.killed;
  const auto found = std::find_if(killed.begin(), killed.end(), [&](const KilledSave& save) {
    return !save.job.empty() && save.job == options_.job;
  });
  return found == killed.end() ? std::string() : found->entry;
}

std::uint64_t Transaction::bytes_there(const std::string& killed) const {
  std::uint64_t bytes = 0;
  if (!killed.empty()) {
    auto data = out().open_folder(killed);
    if (data && options_.has_folder()) {
      data = data->open_folder(options_.data_dir);
    }
    bytes = data ? allocated_bytes(*data, options_.files) : 0;
  }
  for (const PlannedFile& file : options_.files) {
    bytes += file.hole_bytes;
  }
  return bytes;
}

Status Transaction::reserve_descriptors() {
  constexpr std::size_t kToRemove = 3;  // the staging folder, the data folder, its list
  // Reserve first: if emplace_back threw, the leaked descriptor would keep the folder locked.
  reserve_.reserve(kToRemove);
  while (reserve_.size() < kToRemove) {
    reserve_.emplace_back(::fcntl(out().fd(), F_DUPFD_CLOEXEC, 0));
    if (!reserve_.back()) {
      return fail(errno_error(errno, out().path().string() + ": cannot use the folder"));
    }
  }
  return {};
}

Status Transaction::open_staging(const std::string& killed) {
  TRY(killed.empty() ? Status() : take_over(killed));
  for (const KilledSave& save : folder_.killed) {
    if (save.entry != killed) {
      (void)out().remove_tree(save.entry);
    }
  }
  TRY(check_data_entries());
  if (is_taken_over_) {
    return {};
  }
  TRY_ASSIGN(staging_name_, make_staging_folder(out()));
  TRY_ASSIGN(staging_, out().open_folder(staging_name_));
  TRY(open_data());
  TRY(check_target_calls(out(), staging(), options_));
  return restart_record({});
}

// The record and the files of the job are kept, and are checked later. Everything else in the
// folder is removed.
Status Transaction::take_over(const std::string& killed) {
  TRY_ASSIGN(staging_, out().open_folder(killed));
  staging_name_ = killed;
  is_taken_over_ = true;
  std::set<std::string> files;
  for (const PlannedFile& file : options_.files) {
    files.insert(file.name);
  }
  std::set<std::string> top =
      options_.has_folder() ? std::set<std::string>{options_.data_dir} : files;
  top.emplace(kRecordName);
  TRY(staging().remove_all_but(top));
  TRY(open_data());
  return options_.has_folder() ? data().remove_all_but(files) : Status();
}

// Makes the data folder where it is missing.
Status Transaction::open_data() {
  if (!options_.has_folder()) {
    return {};
  }
  const Status made = staging().make_folder(options_.data_dir, kPublishedFolderMode);
  if (!made && made.error().code != ErrorCode::kAlreadyExists) {
    return made;
  }
  TRY_ASSIGN(data_, staging().open_folder(options_.data_dir));
  return {};
}

WrittenRanges Transaction::claimed(std::size_t ranges) const {
  const auto record = read_record(staging());
  return record && *record ? (*record)->written(ranges) : WrittenRanges(ranges);
}

Status Transaction::restart_record(const WrittenRanges& written) {
  TRY_ASSIGN(auto record, RecordWriter::start(staging(), options_.job, written));
  record_.emplace(std::move(record));
  return {};
}

Status Transaction::set_files(std::vector<PlannedFile> files) {
  options_.files = std::move(files);
  return check_data_entries();
}

Status Transaction::check_data_entries() const {
  for (const std::string& entry : data_entries(options_)) {
    TRY_ASSIGN(const auto kind, out().kind_of(entry));
    if (kind) {
      return fail(ErrorCode::kAlreadyExists, out().child(entry) + ": exists");
    }
  }
  return {};
}

void Transaction::commit() {
  is_committed_ = true;
  folder_.made.keep();
}

void Transaction::roll_back() {
  reserve_.clear();
  for (auto entry = moved_data_.rbegin(); entry != moved_data_.rend(); ++entry) {
    (void)out().remove_tree(*entry);
  }
  if (!staging_name_.empty()) {
    remove_staging(out(), staging_name_);
  }
  folder_.made = NewFolders();  // while they are locked
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

Status check_target_limits(const Directory& out, const TransactionOptions& options,
                           std::uint64_t bytes_there) {
  TRY(check_names(out, options));
  TRY(check_file_sizes(out, options.files));
  const std::uint64_t bytes = total_bytes(options.files);
  return check_free_bytes(out, bytes - std::min(bytes, bytes_there));
}

}  // namespace onnx_external
