// Defence in depth: a command gives up, before it reads the first byte of its inputs, whatever it
// does not need for its job. A parser bug that nobody has found yet then reaches the named inputs
// and the output folder, and nothing else.
//
//   Landlock (Linux 5.19 and later, ABI 2)  files: the named ones are read, the named folders are
//                                           written, nothing is executed; later kernels: no TCP, no
//                                           signals to other processes
//   seccomp  (when built with libseccomp)   no new programs or processes, no sockets, no ptrace,
//                                           nothing that only an administrator does
//
// Neither can be taken back, and both hold for threads that start later: enter before the first one
// starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/command.h"
#include "common/options.h"

namespace onnx_external {

// What stays within reach. What does not exist is left out: opening it fails, and says so.
struct SandboxPaths {
  std::vector<std::filesystem::path> read;   // files, or folders with all that is beneath
  std::vector<std::filesystem::path> write;  // folders: read, and files made, renamed, removed
  std::vector<std::filesystem::path> remove_folders_in;  // empty ones may be removed from these

  // What open_checkpoint() may read for these arguments: the files; for a shard index its folder;
  // for a folder that, too, and the blobs of the Hugging Face cache that it is part of.
  void read_checkpoints(const std::vector<std::filesystem::path>& arguments);
  // The folder of a file that a command reads with what lies beside it, or writes.
  void read_folder_of(const std::filesystem::path& file);
  void write_folder_of(const std::filesystem::path& file);
};

// Gives up all but `paths`, as far as the kernel can, and tries whether that holds. What was done:
// "Landlock ABI 7, seccomp", or why not. Requires: no other thread has been started.
[[nodiscard]] std::string restrict_process(const SandboxPaths& paths);

// The same for a command, which with --verbose says what was done. Stays out with --no-sandbox,
// below mpirun, whose processes talk to each other, and in builds with a sanitizer, which do what
// is forbidden then.
void enter_sandbox(const Command& command, const CommonArguments& arguments,
                   const SandboxPaths& paths);

}  // namespace onnx_external
