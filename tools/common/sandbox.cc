#include "common/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <system_error>
#ifdef ONNX_EXTERNAL_SECCOMP
#include <sched.h>
#include <seccomp.h>
#endif

#include "base/file.h"
#include "base/hub_link.h"
#include "checkpoint/formats/checkpoint_file.h"
#include "checkpoint/gguf/gguf_parts.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// The kernel's interface (landlock(7)), defined here because the system's headers may be older than
// its kernel.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr std::uint32_t kVersionFlag = 1;
constexpr int kRulePathBeneath = 1;

enum Access : std::uint64_t {
  kExecute = 1U << 0U,
  kWriteFile = 1U << 1U,
  kReadFile = 1U << 2U,
  kReadFolder = 1U << 3U,
  kRemoveFolder = 1U << 4U,
  kRemoveFile = 1U << 5U,
  kMakeFolder = 1U << 7U,
  kMakeFile = 1U << 8U,
  kRefer = 1U << 13U,     // ABI 2: renames from folder to folder; before that all are forbidden
  kTruncate = 1U << 14U,  // ABI 3
};
constexpr int kLeastAbi = 2;
constexpr std::uint64_t kAllOfAbi2 = (1U << 14U) - 1;
constexpr std::uint64_t kIoctlDevice = 1U << 15U;  // ABI 5
constexpr std::uint64_t kTcp = 3;                  // ABI 4: bind, connect
constexpr std::uint64_t kScopes = 3;               // ABI 6: abstract sockets, signals

constexpr std::uint64_t kForFolder = kReadFile | kReadFolder;
constexpr std::uint64_t kForOutput = kForFolder | kWriteFile | kRemoveFolder | kRemoveFile |
                                     kMakeFolder | kMakeFile | kRefer | kTruncate;

struct Ruleset {
  std::uint64_t file_access;
  std::uint64_t network_access;
  std::uint64_t scopes;
};

struct __attribute__((packed)) PathRule {
  std::uint64_t allowed;
  std::int32_t folder;
};

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

Ruleset handled_by(int abi) {
  Ruleset rules{kAllOfAbi2, 0, 0};
  rules.file_access |= abi >= 3 ? std::uint64_t{kTruncate} : 0U;
  rules.network_access = abi >= 4 ? kTcp : 0U;
  rules.file_access |= abi >= 5 ? kIoctlDevice : 0U;
  rules.scopes = abi >= 6 ? kScopes : 0U;
  return rules;
}

// Allows `access`, and nothing else, to everything beneath the path. A path that cannot be opened
// needs no rule.
bool allow(int ruleset, const fs::path& path, std::uint64_t access, std::uint64_t handled) {
  const UniqueFd fd(::open(path.empty() ? "." : path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) {
    return true;
  }
  if (!S_ISDIR(info.st_mode)) {
    access &= kReadFile | kWriteFile | kTruncate;
  }
  const PathRule rule{access & handled, fd.get()};
  return ::syscall(kAddRule, ruleset, kRulePathBeneath, &rule, 0) == 0;
}

// The result of applying one part of the sandbox.
struct Restriction {
  bool in_force = false;
  std::string text;  // its name, or why it is not in force
};

// Enters Landlock: "Landlock ABI 7".
Restriction restrict_files(const SandboxPaths& paths) {
  const auto abi = static_cast<int>(::syscall(kCreateRuleset, nullptr, 0, kVersionFlag));
  if (abi < kLeastAbi) {
    return {false, "no Landlock in this kernel"};
  }
  const Ruleset rules = handled_by(abi);
  const UniqueFd ruleset(static_cast<int>(::syscall(kCreateRuleset, &rules, sizeof(rules), 0)));
  bool done = ruleset.get() >= 0;
  for (const fs::path& path : paths.read) {
    done = done && allow(ruleset.get(), path, kForFolder, rules.file_access);
  }
  for (const fs::path& path : paths.write) {
    done = done && allow(ruleset.get(), path, kForOutput, rules.file_access);
  }
  for (const fs::path& path : paths.remove_folders_in) {
    done = done && allow(ruleset.get(), path, kRemoveFolder, rules.file_access);
  }
  if (!done || ::syscall(kRestrictSelf, ruleset.get(), 0) != 0) {
    return {false, fmt::format("Landlock failed ({})", std::generic_category().message(errno))};
  }
  return {true, fmt::format("Landlock ABI {}", abi)};
}

#ifdef ONNX_EXTERNAL_SECCOMP
// clone() stays allowed for threads. clone3() is forbidden, because a filter cannot read its flags,
// which are behind a pointer; the C library then uses clone().
bool forbid_processes(scmp_filter_ctx filter) {
  const scmp_arg_cmp is_process{
      .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = CLONE_THREAD, .datum_b = 0};
  return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &is_process) ==
             0 &&
         seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
}

constexpr int kForbidden[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(socket),
    SCMP_SYS(socketpair),
    SCMP_SYS(connect),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(ptrace),
    SCMP_SYS(kcmp),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(open_tree),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(personality),
    SCMP_SYS(memfd_create),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
};

// libseccomp frees memory twice if realloc() fails. So more than it needs is allocated and freed
// beforehand: either this throws std::bad_alloc, or the allocator has the memory ready.
void make_room_for_filter() {
  constexpr std::size_t kRoom = std::size_t{1} << 20U;
  ::operator delete(::operator new(kRoom));
}

// Enters seccomp.
Restriction restrict_calls() {
  make_room_for_filter();
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  bool done = filter != nullptr && forbid_processes(filter);
  for (const int call : kForbidden) {
    done = done && seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0) == 0;
  }
  const int error = done ? seccomp_load(filter) : -EINVAL;
  seccomp_release(filter);
  if (error != 0) {
    return {false, fmt::format("seccomp failed ({})", std::generic_category().message(-error))};
  }
  return {true, "seccomp"};
}
#else
Restriction restrict_calls() {
  return {false, "built without seccomp"};
}
#endif

// Only a regular file can be an index; opening a FIFO would wait. open_checkpoint() rejects other
// files.
bool may_be_index(const fs::path& path) {
  const auto file = SourceFile::open(path);
  const auto format = file ? sniff_format(**file) : Result<FileFormat>(FileFormat::kUnknown);
  return format && *format == FileFormat::kJson;
}

bool is_beneath_root(const std::vector<fs::path>& paths) {
  std::error_code ignored;
  for (const fs::path& path : paths) {
    if (fs::equivalent(path, "/", ignored)) {
      return true;
    }
  }
  return false;
}

// Tests that forbidden actions fail. Returns what still works, or "" if everything is in force.
std::string broken_promise(const SandboxPaths& paths, bool files, bool calls) {
  if (files && !is_beneath_root(paths.read) && !is_beneath_root(paths.write)) {
    const UniqueFd root(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root.get() >= 0) {
      return "the root folder is still readable";
    }
  }
  if (calls) {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    char* const nothing[] = {nullptr};
    if (socket.get() >= 0 || ::execve("", nothing, nothing) != -1 || errno != EPERM) {
      return "sockets and program starts are still allowed";
    }
  }
  return "";
}

std::string_view reason_to_stay_out(const CommandOptions& options) {
  if (!options.sandbox) {
    return "by --no-sandbox";
  }
  if (kSanitized) {
    return "built with a sanitizer";
  }
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) {
      return "run by mpirun";
    }
  }
  return "";
}

}  // namespace

std::string restrict_process(const SandboxPaths& paths) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return "off, the kernel refuses";
  }
  const Restriction files = restrict_files(paths);
  const Restriction calls = restrict_calls();
  const std::string broken = broken_promise(paths, files.in_force, calls.in_force);
  return fmt::format("{}, {}{}", files.text, calls.text, broken.empty() ? "" : "; but " + broken);
}

void SandboxPaths::read_checkpoints(const std::vector<fs::path>& arguments) {
  std::error_code ignored;
  for (const fs::path& argument : arguments) {
    const bool is_folder = fs::is_directory(argument, ignored);
    const bool is_part = !first_gguf_part(argument.filename().string()).empty();
    if (!is_folder && !is_part && !may_be_index(argument)) {
      read.push_back(argument);
      continue;
    }
    const fs::path folder =
        fs::canonical(is_folder ? argument : argument.parent_path() / ".", ignored);
    read.push_back(folder);
    read_blobs_of(folder);
  }
}

void SandboxPaths::read_blobs_of(const fs::path& folder) {
  if (fs::path blobs = hub_blobs_of(folder); !blobs.empty()) {
    read.push_back(std::move(blobs));
  }
}

void SandboxPaths::read_folder_of(const fs::path& file) {
  read.push_back(file.parent_path());
  read_blobs_of(file.parent_path());
}

void SandboxPaths::write_folder_of(const fs::path& file) {
  if (!file.empty()) {
    write.push_back(file.parent_path());
  }
}

void enter_sandbox(const Command& command, const CommandOptions& options,
                   const SandboxPaths& paths) {
  const std::string_view reason = reason_to_stay_out(options);
  const std::string done =
      reason.empty() ? restrict_process(paths) : fmt::format("off, {}", reason);
  if (options.verbose) {
    command.note("sandbox: " + done);
  }
}

}  // namespace onnx_external
