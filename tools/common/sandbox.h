// Restricts a command before it reads the first byte of its inputs, so that the process has only
// the rights that it needs. If an input exploits an unknown bug in a parser, it can access only the
// named inputs and the output folder.
//
//   Landlock (Linux 5.19 and later, ABI 2)  Files: only the named ones can be read, only the named
//                                           folders written, nothing executed. Later kernels also
//                                           forbid TCP and signals to other processes.
//   seccomp  (if built with libseccomp)     No new programs or processes, no sockets, no ptrace, no
//                                           calls that need an administrator.
//
// Neither restriction can be undone. Both apply only to the calling thread and to threads that it
// starts later, so enter the sandbox before starting any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/command.h"
#include "options/options.h"

namespace onnx_external {

// The paths that stay accessible. Paths that do not exist are ignored, and opening them later fails
// with the usual error.
struct SandboxPaths {
  std::vector<std::filesystem::path> read;  // files, or folders with all their contents
  // Folders in which files may be read, created and removed.
  std::vector<std::filesystem::path> write;
  // Folders from which empty folders may be removed.
  std::vector<std::filesystem::path> remove_folders_in;

  // Adds all paths that open_checkpoint() may read for these arguments. For a file, this is the
  // file; for a shard index or a GGUF model in several files, it is the folder. For a folder, it
  // also includes the blobs of the Hugging Face cache to which the folder belongs.
  void read_checkpoints(const std::vector<std::filesystem::path>& arguments);
  // Adds the blobs of the Hugging Face cache to which the folder belongs, if any.
  void read_blobs_of(const std::filesystem::path& folder);
  // Add the folder of a file, to read or to write the file and those next to it. If the folder is
  // in a Hugging Face cache, reading includes the blobs to which its links point.
  void read_folder_of(const std::filesystem::path& file);
  void write_folder_of(const std::filesystem::path& file);
};

// Gives up access to everything except `paths`, as far as the kernel supports it, and tests the
// result. Returns the restrictions in force, such as "Landlock ABI 7, seccomp", or the reason why
// there are none. Requires: no other thread has been started.
[[nodiscard]] std::string restrict_process(const SandboxPaths& paths);

// Calls restrict_process() for a command, and reports the result with --verbose. Does nothing with
// --no-sandbox, under mpirun, whose processes communicate with each other, and in builds with a
// sanitizer, which needs forbidden calls.
void enter_sandbox(const Command& command, const CommandOptions& options,
                   const SandboxPaths& paths);

}  // namespace onnx_external
