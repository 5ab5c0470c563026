// Replaces the system calls that change files in this executable, including those of the library. A
// test can fail, shorten, interrupt or skip the n-th call, kill the process there, or cut the
// power.
#pragma once

#include <cstddef>

namespace onnx_external {

enum class Fault {
  kNone,
  kFailOnce,     // the n-th call fails with `error_number`
  kFailForever,  // the n-th call and all later ones fail
  kKill,         // SIGKILL before the n-th call
  kPowerCut,     // the file system stops before the n-th call (set_power_cut_target), then SIGKILL
  kShort,        // every call moves fewer bytes than requested, and every third is interrupted
  kInterrupt,    // like kFailOnce with EINTR, for calls that Linux can interrupt
  kLie,          // the n-th call does nothing but reports success
};

// Steps of the protocol that can be left out, to show that the tests detect this.
enum class Sabotage {
  kNone,
  kNoSync,       // fsync and syncfs do nothing
  kModelFirst,   // the first rename into the output folder waits for that of the model
  kNoCleanup,    // unlink does nothing
  kNoFreeSpace,  // the file system does not state its free space
};

// The capabilities of the file system.
struct FileSystem {
  bool rename_flags = true;  // many FUSE file systems have none
  bool locks = true;
  bool room = true;  // false if no space can be reserved (fallocate)
  // The errors with which these calls always fail; 0 if they work.
  int copies = 0;          // copy_file_range and splice
  int reservations = 0;    // fallocate
  int folder_syncs = 0;    // fsync
  int renames = 0;         // of files and folders
  int folder_renames = 0;  // of folders that have entries
  int replacements = 0;    // renames to an existing name
};

// Sets the capabilities until the next call of pretend().
void pretend(FileSystem system);

// Starts to count calls from 0 and applies the fault. Calls of unlink, which clean up, never fail.
void inject(Fault fault, std::size_t nth = 0, int error_number = 0);

// Leaves out a step of the protocol until the next call of sabotage().
void sabotage(Sabotage step);

// Sets a folder on the file system that kPowerCut stops (ext4 or xfs). Data that was not synced
// does not reach the disk.
void set_power_cut_target(const char* folder);

// Stops that file system at once. Returns false if this is not possible.
bool cut_power();

// Returns the number of syncfs calls since inject().
std::size_t syncs_of_file_systems();

// Returns the number of sync_file_range calls since inject().
std::size_t started_writebacks();

// Returns the number of files that were synced again after a failed sync, since inject().
std::size_t syncs_after_a_failure();

// Ends the injection. Returns the number of calls.
std::size_t stop_injecting();

}  // namespace onnx_external
