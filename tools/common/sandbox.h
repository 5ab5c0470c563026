// The sandbox: before a command reads the first byte of its inputs, it gives up all rights that its
// job does not need. An unknown bug in a parser can then reach only the named inputs and the output
// folder.
//
//   Landlock (Linux 5.19 and later, ABI 2)  Files: only the named ones can be read, only the named
//                                           folders written, nothing executed. Later kernels also
//                                           forbid TCP and signals to other processes.
//   seccomp  (if built with libseccomp)     No new programs or processes, no sockets, no ptrace, no
//                                           calls that need an administrator.
//
// Neither can be undone. Both also apply to threads that start later, so enter the sandbox before
// the first one starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/command.h"
#include "options/options.h"

namespace onnx_external {

// The paths that stay accessible. Paths that do not exist are left out; opening them fails with its
// own error.
struct SandboxPaths {
  std::vector<std::filesystem::path> read;   // files, or folders with everything in them
  std::vector<std::filesystem::path> write;  // folders to read, and to create and remove files in
  std::vector<std::filesystem::path> remove_folders_in;  // folders to remove empty folders from

  // Adds what open_checkpoint() may read for these arguments: a file; the folder of a shard index
  // or of a GGUF model in several files; a folder, and the blobs of the Hugging Face cache that it
  // belongs to.
  void read_checkpoints(const std::vector<std::filesystem::path>& arguments);
  // Adds the blobs of the Hugging Face cache that the folder belongs to, if it does.
  void read_blobs_of(const std::filesystem::path& folder);
  // Adds the folder of a file, to read the file and those beside it (in a Hugging Face cache also
  // the blobs that they are links to), or to write them.
  void read_folder_of(const std::filesystem::path& file);
  void write_folder_of(const std::filesystem::path& file);
};

// Gives up access to everything but `paths`, as far as the kernel can, and tests the result.
// Returns what is in force, "Landlock ABI 7, seccomp", or why nothing is. Requires: no other thread
// has been started.
[[nodiscard]] std::string restrict_process(const SandboxPaths& paths);

// Does the same for a command, and reports the result with --verbose. Does nothing with
// --no-sandbox, under mpirun, whose processes communicate with each other, and in builds with a
// sanitizer, which needs calls that would be forbidden.
void enter_sandbox(const Command& command, const CommandOptions& options,
                   const SandboxPaths& paths);

}  // namespace onnx_external
