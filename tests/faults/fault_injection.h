// Replaces the system calls that change files (in this executable, for the library too) so that a
// test can fail, shorten or interrupt the n-th of them, or die there.
#pragma once

#include <cstddef>

namespace onnx_external {

enum class Fault {
  kNone,
  kFailOnce,     // the n-th call fails with `error_number`
  kFailForever,  // the n-th and all later ones
  kKill,         // SIGKILL before the n-th
  kShort,        // every call moves fewer bytes than asked for, every third is interrupted
};

// From now on counts calls anew and applies the fault; cleaning up (unlink) never fails.
void inject(Fault fault, std::size_t nth = 0, int error_number = 0);

// Calls of syncfs since inject().
std::size_t syncs_of_file_systems();

// Ends it; returns how many calls there were.
std::size_t stop_injecting();

}  // namespace onnx_external
